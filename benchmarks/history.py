"""What findings and the gate of a history are worth: false alarms, detection, errors of dates.

Each row is a kind of histories of 50 conditions with a known truth
(tests/support/history/simulated_histories.py). Printed are the tables of docs/history.md. First,
of changes:
- found: the share of histories in which the change is found, in its direction, and the median of
  how many sessions its date is off;
- date, size in the interval: the shares of those found;
- false: the share of histories with any other finding, of 50 conditions together; newest: with one
  that is provisional, because it is of the last one or two sessions.
Then, of the gate: the last session is judged by those before it. Changes are looked for in these,
as by `snakemake history`, and the sessions since the last one are the base.
- false: the share of histories in which the gate fails although nothing changed then;
- 1, 2, 5 %: the share in which it fails after one condition has lost so much;
- judged: the mean share of conditions that had sessions enough.
The target of both: at most 5 % false in histories without seasons. Histories are drawn by one
generator and analysed by several processes, so that their number changes no result.
"""

import dataclasses
import multiprocessing
import os

import numpy as np

from dlbench.analysis import equivalence
from dlbench.history import change_points, gate, prediction
from support.history.simulated_histories import Kind, drawn, outcome

from . import measuring

MAX_FALSE = 0.05
CHANGES = {
    "no change": Kind(),
    "no change, 8 sessions": Kind(sessions=8),
    "no change, 100 sessions": Kind(sessions=100),
    "no change, 1 repeat": Kind(repeats=(1, 1)),
    "no change, 1 to 10 repeats": Kind(repeats=(1, 10)),
    "no change, scatter 3 %": Kind(scatter=0.03),
    "no change, three events": Kind(event=True),
    "no change, 30 % missing": Kind(missing=0.3, gaps=0.3),
    "no change, 5 % outliers": Kind(outliers=0.05),
    "seasons of 0.3 %": Kind(season=0.003, sessions=60),
    "seasons of 1 %": Kind(season=0.01, sessions=60),
    "all 50 by 1 %": Kind(step=-0.01),
    "all 50 by 3 %": Kind(step=-0.03),
    "all 50 by 1 %, scatter 3 %": Kind(step=-0.01, scatter=0.03),
    "10 of 50 by 3 %": Kind(step=0.03, to=10),
    "one by 1 %, scatter 0.5 %": Kind(step=-0.01, to=1, scatter=0.005),
    "one by 1 %": Kind(step=-0.01, to=1),
    "one by 1 %, at an event": Kind(step=-0.01, to=1, event=True),
    "one by 3 %": Kind(step=-0.03, to=1),
    "one by 3 %, scatter 3 %": Kind(step=-0.03, to=1, scatter=0.03),
    "one by 3 %, scatter 3 %, at an event": Kind(step=-0.03, to=1, scatter=0.03, event=True),
    "one by 3 %, 12 sessions": Kind(step=-0.03, to=1, sessions=12),
    "one by 3 %, 1 repeat": Kind(step=-0.03, to=1, repeats=(1, 1)),
    "one by 5 %": Kind(step=0.05, to=1),
    "one by 5 %, 5 % outliers": Kind(step=0.05, to=1, outliers=0.05),
    "all 50 by 5 % over 10 sessions": Kind(step=-0.05, ramp=10),
}
GATE = {
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
    parser = measuring.parser(__doc__)
    parser.add_argument("--histories", type=int, default=5000, help="of a row, with changes")
    parser.add_argument("--sessions", type=int, default=400, help="of a row, judged by the gate")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    figures = measuring.Figures(args.json)
    with multiprocessing.Pool(args.processes) as pool:
        changes(figures, args.histories, pool.map)
    sessions(figures, args.sessions)


def changes(figures, histories, apply):
    chance, false = np.random.default_rng(43), {}
    _row("History", "Found", "Off by", "Date", "Size", "False", "Newest")
    _row(*7 * ["---"])
    for name, kind in CHANGES.items():
        found = outcome(kind, histories, chance, apply)
        false[name] = found.false
        of_change = ["", "", "", ""]
        if kind.step:
            dated = "" if kind.ramp > 1 else f"{100 * found.dated:.0f} %"
            sized = "" if kind.ramp > 1 else f"{100 * found.sized:.0f} %"
            of_change = [f"{100 * found.detected:.0f} %", f"{found.off:.0f}", dated, sized]
        _row(name, *of_change, f"{100 * found.false:.1f} %", f"{100 * found.provisional:.1f} %")
    _add_most(figures, "most histories with a false finding", false)


def sessions(figures, histories):
    chance, false = np.random.default_rng(434), {}
    _row("History", "False", *(f"{100 * size:g} %" for size in prediction.SIZES), "Judged")
    _row(*(3 + len(prediction.SIZES)) * ["---"])
    for name, kind in GATE.items():
        rates, share = judged(kind, histories, (0.0, *prediction.SIZES), chance)
        false[name] = rates[0]
        powers = (f"{100 * rate:.0f} %" for rate in rates[1:])
        _row(name, f"{100 * rates[0]:.1f} %", *powers, f"{100 * share:.0f} %")
    _add_most(figures, "most sessions without a change that fail", false)


def _row(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def _add_most(figures, what, false):
    steady = [share for name, share in false.items() if "seasons" not in name]
    figures.add(f"{what}, of kinds without seasons", max(steady), at_most=MAX_FALSE)


def judged(kind, histories, sizes, chance):
    """(share of histories that fail for each size of a loss, share of conditions judged)."""
    failed, share = np.zeros(len(sizes)), 0
    for _ in range(histories):
        quiet = dataclasses.replace(kind, outliers=0.0)
        history = drawn(kind, chance)
        newest = drawn(dataclasses.replace(quiet, step=0.0), chance)
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
        share += len(tested) / kind.conditions
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
    return failed / histories, share / histories


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
