"""What findings and the gate of a history are worth: false alarms, detection, errors of dates.

Histories are simulated with a known truth (tests/support/history/simulated_histories.py). Printed
are the tables of docs/history.md, rates in per cent with their standard errors:
- no change: the share of histories in which any condition has a finding;
- changes: the share in which the change is found, and in which just its conditions are named; the
  shares of intervals of date and size with the truth in them; the share with other findings;
- the gate: the share in which it fails although nothing changed in the last session, and in which
  it fails after one condition has lost 2 or 5 %.
The target: at most 5 % false, 9 of 10 steps of 3 % found where means of sessions scatter by 1 %.
"""

import functools
import math
import multiprocessing
import os
from dataclasses import replace

import numpy as np

from dlbench.analysis import judge
from dlbench.history import change_points, gate
from support.history.simulated_histories import USUAL_REPEATS, Kind, drawn, outcome

from . import measuring

MAX_FALSE, MIN_FOUND = 0.05, 0.9
SUITES = (3, 5, 10, 50)
NOISE = {
    "independent": Kind(),
    "autocorrelation 0.3": Kind(alike=0.3),
    "autocorrelation 0.5": Kind(alike=0.5),
    "the same, common to all": Kind(alike=0.5, common=0.9),
    "heavy tails (t, 3 degrees)": Kind(freedom=3),
    "one outlier of 10 %": Kind(outlier=0.1),
    "5 % of sessions off by 10 %": Kind(outliers=0.05),
    "1 to 10 repeats": Kind(repeats=(1, 10)),
    "30 % missing": Kind(missing=0.3),
    "seasons of 1 %": Kind(season=0.01),
    "20 sessions, autocorrelation 0.5": Kind(alike=0.5, sessions=20),
    # Beyond the target:
    "autocorrelation 0.7": Kind(alike=0.7),
    "heavy tails and autocorrelation 0.5": Kind(alike=0.5, freedom=3),
}
BEYOND = 2
STEPS = {f"one of {count} by 3 %": Kind(step=-0.03, conditions=count) for count in SUITES}
CHANGES = {
    "one of 5 by 3 %, since 3 sessions": Kind(step=-0.03, newest=3),
    "since 5": Kind(step=-0.03, newest=5),
    "of 30 sessions in all": Kind(step=-0.03, sessions=30),
    "of 15": Kind(step=-0.03, sessions=15),
    "undone after 10": Kind(step=-0.03, back=10),
    "over 10 sessions": Kind(step=-0.03, ramp=10),
    "autocorrelation 0.5": Kind(step=-0.03, alike=0.5),
    "heavy tails": Kind(step=-0.03, freedom=3),
    "30 % missing": Kind(step=-0.03, missing=0.3),
    "one of 5 by 1 %, scatter 0.3 %": Kind(step=-0.01, scatter=0.003),
    "10 of 50 by 3 %": Kind(step=-0.03, conditions=50, to=10),
    "all 5 by 3 %, since 3 sessions": Kind(step=-0.03, to=5, newest=3),
    "all 5 by 3 %, of 12 sessions": Kind(step=-0.03, to=5, sessions=12),
    "all 50 by 1 %": Kind(step=-0.01, conditions=50, to=50),
}
QUIET = Kind(sessions=30, scatter=0.005, common=0.1)
GATE = {
    "30 sessions": {},
    "9 sessions": {"sessions": 9},
    "12 sessions": {"sessions": 12},
    "60 sessions": {"sessions": 60},
    "scatter 1 %": {"scatter": 0.01},
    "autocorrelation 0.5": {"alike": 0.5},
    "heavy tails": {"freedom": 3},
    "heavy tails, 12 sessions": {"freedom": 3, "sessions": 12},
    "heavy tails, 60 sessions": {"freedom": 3, "sessions": 60},
    "one outlier of 10 % before": {"outlier": 0.1},
    "all lost 3 % in one": {"step": -0.03, "to": 50},
}
LOSSES, LEAST = (0.0, 0.02, 0.05), -math.log1p(-gate.LEAST)


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="of a cell, with changes")
    parser.add_argument("--sessions", type=int, default=400, help="of a cell, judged by the gate")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    figures = measuring.Figures(args.json)
    with multiprocessing.Pool(args.processes) as pool:
        false_findings(figures, args.histories, pool.map)
        changes(figures, args.histories, pool.map)
        sessions(figures, args.sessions, pool.map)


def false_findings(figures, histories, apply):
    cells = [replace(one, conditions=count) for one in NOISE.values() for count in SUITES]
    outcomes = apply(functools.partial(outcome, histories=histories, seed=43), cells)
    false = np.reshape([one.false for one in outcomes], (len(NOISE), len(SUITES)))
    headings = "No change", *(f"{count} conditions" for count in SUITES)
    _table(headings, NOISE, [[_rate(share, histories) for share in row] for row in false])
    worst = false[:-BEYOND].max()
    figures.add("most histories with a false finding", worst, at_most=MAX_FALSE)


def changes(figures, histories, apply):
    kinds = STEPS | CHANGES
    outcomes = apply(functools.partial(outcome, histories=histories, seed=44), kinds.values())
    rows = []
    for kind, one in zip(kinds.values(), outcomes, strict=True):
        found, named, other = (_rate(x, histories) for x in (one.found, one.named, one.false))
        intervals = ("" if kind.ramp > 1 else f"{100 * x:.0f}" for x in (one.dated, one.sized))
        rows.append([found, named, *intervals, other])
    _table(("Change", "Found", "Named", "Date", "Size", "Others"), kinds, rows)
    least = min(one.found for one in outcomes[: len(STEPS)])
    figures.add("least share of steps of 3 % that are found", least, at_least=MIN_FOUND)


def sessions(figures, histories, apply):
    cells = [replace(QUIET, conditions=count, **of) for of in GATE.values() for count in (5, 50)]
    found = apply(functools.partial(failing, histories=histories, seed=434), cells)
    failed = np.reshape(found, (len(GATE), -1))
    losses = [f"{100 * loss:g} %" for loss in LOSSES[1:]]
    headings = "Gate", "False, 5 conditions", *losses, "False, 50 conditions", *losses
    _table(headings, GATE, [[_rate(share, histories) for share in row] for row in failed])
    worst = failed[:, :: len(LOSSES)].max()
    figures.add("most sessions without a change that fail", worst, at_most=MAX_FALSE)


def _table(headings, names, rows):
    named = ([name, *row] for name, row in zip(names, rows, strict=True))
    for cells in (headings, len(headings) * ["---"], *named):
        print(f"| {' | '.join(cells)} |", flush=True)


def _rate(share, histories):
    """A share of histories in per cent, and its standard error."""
    error = math.sqrt(max(share * (1 - share), 0.25 / histories) / histories)
    return f"{100 * share:.1f} ({100 * error:.1f})"


def failing(kind, histories, seed):
    """The shares of histories in which the gate fails, for each of LOSSES in one condition."""
    chance, failed = np.random.default_rng(seed), np.zeros(len(LOSSES))
    for _ in range(histories):
        # A session more, at the level of the newest segment.
        history = drawn(replace(kind, sessions=kind.sessions + 1), chance)
        newest = history.means[:, -1]
        predictions = _predictions(kind, history)
        tested = [at for at in predictions if np.isfinite(newest[at])]
        hit = chance.choice(tested) if tested else None
        for index, loss in enumerate(LOSSES):
            lost = {at: newest[at] + (np.log1p(-loss) if at == hit else 0.0) for at in tested}
            off = [predictions[at].off(mean) for at, mean in lost.items()]
            judged = judge.judge(off, gate.LEAST, least_runs=0)
            for one, (at, mean) in zip(judged, lost.items(), strict=True):
                least = max(LEAST, predictions[at].least * predictions[at].error)
                if one.p_difference < judge.ALPHA and predictions[at].level - mean > least:
                    failed[index] += 1
                    break
    return failed / histories


def _predictions(kind, history):
    """{condition: the prediction of its newest session}, of those with sessions enough."""
    means, counts = history.means[:, :-1], history.counts
    cuts = np.zeros(len(means), dtype=int)
    for found in change_points.find(means):
        for at in found.members:
            cuts[at] = max(cuts[at], found.change.at)
    variance = kind.scatter**2 * USUAL_REPEATS / 2
    made, farthest = {}, np.zeros(means.shape[1])
    for at, cut in enumerate(cuts):
        base = np.flatnonzero(np.isfinite(means[at]) & (np.arange(means.shape[1]) >= cut))
        if len(base) >= gate.MIN_SESSIONS:
            clipped = change_points.without_outliers(means[at, base])
            made[at] = gate.predict(clipped, counts[at, base], variance, counts[at, -1], None)
            off = gate.past_deviations(means[at, base], clipped)
            farthest[base] = np.maximum(farthest[base], off)
    known = farthest[farthest > 0]
    least = gate.exceeded(known, [*made.values()]) if made else 0.0
    return {at: replace(one, least=least) for at, one in made.items()}


if __name__ == "__main__":
    main()
