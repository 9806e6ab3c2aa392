"""What the verdicts of `dlbench gate` are worth: false alarms of whole sessions, and power.

uv run python -m tests.performance.results.history_gate [--histories 400]

Each row is a kind of histories of 50 conditions (tests/support/history/simulated_histories.py), of
which the last session is judged by those before it: changes are looked for in these, as by
`snakemake history`, and the sessions since the last one are the base. Printed are, in the columns
of docs/history.md,
- false: the share of histories in which the gate fails although nothing changed then;
- 1, 2, 5 %: the share in which it fails after one condition has lost so much;
- judged: the mean share of conditions that had sessions enough.
The target: at most 5 % false in histories without seasons.
"""

import dataclasses

import numpy as np

from dlbench.analysis import equivalence
from dlbench.history import change_points, gate, prediction
from support.history import simulated_histories
from support.history.simulated_histories import Kind

from .. import bench

MAX_FALSE = 0.05
KINDS = {
    "9 sessions": Kind(sessions=9),
    "12 sessions": Kind(sessions=12),
    "30 sessions": Kind(),
    "30 sessions, scatter 0.5 %": Kind(scatter=0.005),
    "30 sessions, scatter 3 %": Kind(scatter=0.03),
    "30 sessions, 1 repeat": Kind(repeats=(1, 1)),
    "30 sessions, 1 to 10 repeats": Kind(repeats=(1, 10)),
    "30 sessions, 30 % missing": Kind(missing=0.3),
    "30 sessions, 5 % outliers before": Kind(outliers=0.05),
    "30 sessions, all lost 3 % in one": Kind(step=-0.03),
    "60 sessions, seasons of 0.3 %": Kind(season=0.003, sessions=60),
}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--histories", type=int, default=400)
    args = parser.parse_args()
    chance = np.random.default_rng(434)
    sizes = prediction.SIZES
    print(f"| History | False | {' | '.join(f'{100 * s:g} %' for s in sizes)} | Judged |")
    print(f"| --- | {'--- | ' * (len(sizes) + 2)}".rstrip())
    false = {}
    for name, kind in KINDS.items():
        rates, judged = outcome(kind, args.histories, (0.0, *sizes), chance)
        false[name] = rates[0]
        powers = " | ".join(f"{100 * rate:.0f} %" for rate in rates[1:])
        print(
            f"| {name} | {100 * false[name]:.1f} % | {powers} | {100 * judged:.0f} % |", flush=True
        )
    steady = [share for name, share in false.items() if "seasons" not in name]
    figures = bench.Figures(args.json)
    figures.add("most sessions without a change that fail, of kinds without seasons", max(steady),
                at_most=MAX_FALSE)  # fmt: skip


def outcome(kind, histories, sizes, chance):
    """(share of histories that fail for each size of a loss, share of conditions judged)."""
    failed, judged = np.zeros(len(sizes)), 0
    for _ in range(histories):
        quiet = dataclasses.replace(kind, outliers=0.0)
        history = simulated_histories.drawn(kind, chance)
        newest = simulated_histories.drawn(dataclasses.replace(quiet, step=0.0), chance)
        predictions = _predictions(history)
        # A session more of the same conditions, at the level of the newest segment.
        level = np.log1p(kind.step) if kind.step else 0.0
        means, counts = newest.means[:, -1] + level, newest.counts[:, -1]
        tested = {
            place: (made, mean, int(count))
            for place, (made, mean, count) in enumerate(
                zip(predictions, means, counts, strict=True)
            )
            if made is not None and np.isfinite(mean)
        }
        judged += len(tested) / kind.conditions
        hit = chance.choice(list(tested)) if tested else None
        for index, size in enumerate(sizes):
            ps, changes = [], []
            for place, (made, mean, count) in tested.items():
                shifted = mean + (np.log1p(-size) if place == hit else 0.0)
                predicted = made(count)
                ps.append(predicted.p(shifted))
                changes.append(shifted - predicted.level)
            adjusted = equivalence.holm(ps)
            failed[index] += any(
                p < prediction.ALPHA and change < np.log1p(-gate.LEAST)
                for p, change in zip(adjusted, changes, strict=True)
            )
    return failed / histories, judged / histories


def _predictions(history):
    """For each condition, the prediction for a number of runs; None: too few sessions."""
    cuts = np.zeros(len(history.means), dtype=int)
    for found in history.findings():
        if not found.change.provisional:
            for place in found.members:
                cuts[place] = max(cuts[place], found.change.at)
    return [_prediction(history, place, cut) for place, cut in enumerate(cuts)]


def _prediction(history, place, cut):
    rows = np.flatnonzero(
        np.isfinite(history.means[place]) & (np.arange(history.means.shape[1]) >= cut)
    )
    if len(rows) < gate.MIN_SESSIONS:
        return None
    means = change_points.without_outliers(history.means[place, rows])
    counts = history.counts[place, rows]
    variance = float(history.errors[place, 0] ** 2 * history.counts[place, 0])
    return lambda runs: prediction.predict(means, counts, variance, runs, None)


if __name__ == "__main__":
    main()
