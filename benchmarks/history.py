"""What findings and the gate of a history are worth: false alarms, detection, errors of dates.

Histories are simulated with a known truth (tests/support/history/simulated_histories.py). Printed
are the tables of docs/history.md, rates with their standard errors:
- false findings: the share of histories without a change in which any condition has a finding;
- changes: the share of histories in which the change is found, and in which just its conditions
  are named; of those found, the shares whose intervals have the true date and size; the share with
  any other finding;
- the gate: the last session is judged by those before it since the last change that is found. The
  share of histories in which it fails although nothing changed then, and in which it does after one
  condition has lost 2 or 5 %.
The target: at most 5 % false, 9 of 10 steps of 3 % found where means of sessions scatter by 1 %.
"""

import dataclasses
import functools
import itertools
import math
import multiprocessing
import os

import numpy as np

from dlbench.analysis import equivalence
from dlbench.history import change_points, gate, prediction, shared_changes
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
}
HARDER = {
    "autocorrelation 0.7": Kind(alike=0.7),
    "heavy tails and autocorrelation 0.5": Kind(alike=0.5, freedom=3),
}
STEPS = {f"one of {count} by 3 %": Kind(step=-0.03, conditions=count) for count in SUITES}
CHANGES = {
    "one of 5 by 3 %, since 3 sessions": Kind(step=-0.03, newest=3),
    "since 5": Kind(step=-0.03, newest=5),
    "since 10": Kind(step=-0.03, newest=10),
    "of 30 sessions in all": Kind(step=-0.03, sessions=30),
    "of 15": Kind(step=-0.03, sessions=15),
    "undone after 10": Kind(step=-0.03, back=10),
    "over 10 sessions": Kind(step=-0.03, ramp=10),
    "autocorrelation 0.5": Kind(step=-0.03, alike=0.5),
    "heavy tails": Kind(step=-0.03, freedom=3),
    "30 % missing": Kind(step=-0.03, missing=0.3),
    "one of 5 by 1 %": Kind(step=-0.01),
    "one of 5 by 1 %, scatter 0.3 %": Kind(step=-0.01, scatter=0.003),
    "10 of 50 by 3 %": Kind(step=-0.03, conditions=50, to=10),
    "all 5 by 3 %": Kind(step=-0.03, to=5),
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
    "1 to 10 repeats": {"repeats": (1, 10)},
    "30 % missing": {"missing": 0.3},
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
        false_findings(figures, args.histories, pool.imap)
        changes(figures, args.histories, pool.imap)
        sessions(figures, args.sessions, pool.imap)


def false_findings(figures, histories, apply):
    kinds = NOISE | HARDER
    cells = [
        dataclasses.replace(kind, conditions=count) for kind in kinds.values() for count in SUITES
    ]
    outcomes = apply(functools.partial(outcome, histories=histories, seed=43), cells)
    _row("No change", *(f"{count} conditions" for count in SUITES))
    _row(*(1 + len(SUITES)) * ["---"])
    worst = 0.0
    for name in kinds:
        rates = [one.false for one in itertools.islice(outcomes, len(SUITES))]
        worst = max(worst, *rates) if name in NOISE else worst
        _row(name, *(_rate(rate, histories) for rate in rates))
    figures.add("most histories with a false finding", worst, at_most=MAX_FALSE)


def changes(figures, histories, apply):
    kinds = STEPS | CHANGES
    outcomes = apply(functools.partial(outcome, histories=histories, seed=44), kinds.values())
    _row("Change", "Found", "Named", "Date", "Size", "Other findings")
    _row(*6 * ["---"])
    least = 1.0
    for (name, kind), one in zip(kinds.items(), outcomes, strict=True):
        least = min(least, one.found) if name in STEPS else least
        found, named, other = (_rate(x, histories) for x in (one.found, one.named, one.false))
        intervals = ("" if kind.ramp > 1 else f"{100 * x:.0f} %" for x in (one.dated, one.sized))
        _row(name, found, named, *intervals, other)
    figures.add("least share of steps of 3 % that are found", least, at_least=MIN_FOUND)


def sessions(figures, histories, apply):
    cells = [
        dataclasses.replace(QUIET, **({"conditions": count} | parts))
        for parts in GATE.values()
        for count in (5, 50)
    ]
    rates = apply(functools.partial(failing, histories=histories, seed=434), cells)
    losses = [f"{100 * loss:g} %" for loss in LOSSES[1:]]
    _row("Gate", "False, 5 conditions", *losses, "False, 50 conditions", *losses)
    _row(*(1 + 2 * len(LOSSES)) * ["---"])
    worst = 0.0
    for name in GATE:
        of_cells = [*itertools.islice(rates, 2)]
        worst = max(worst, *(one[0] for one in of_cells))
        _row(name, *(_rate(rate, histories) for one in of_cells for rate in one))
    figures.add("most sessions without a change that fail", worst, at_most=MAX_FALSE)


def _row(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def _rate(share, histories):
    """A share of histories with its standard error."""
    error = math.sqrt(max(share * (1 - share), 0.25 / histories) / histories)
    return f"{100 * share:.1f} ± {100 * error:.1f} %"


def failing(kind, histories, seed):
    """The shares of histories in which the gate fails, for each of LOSSES in one condition."""
    chance, failed = np.random.default_rng(seed), np.zeros(len(LOSSES))
    for _ in range(histories):
        # A session more, at the level of the newest segment.
        history = drawn(dataclasses.replace(kind, sessions=kind.sessions + 1), chance)
        newest = history.means[:, -1]
        predictions = _predictions(kind, history)
        tested = [at for at in predictions if np.isfinite(newest[at])]
        hit = chance.choice(tested) if tested else None
        for index, loss in enumerate(LOSSES):
            lost = {at: newest[at] + (np.log1p(-loss) if at == hit else 0.0) for at in tested}
            ps = equivalence.holm([predictions[at].p(mean) for at, mean in lost.items()])
            failed[index] += any(
                p < prediction.ALPHA and made.level - lost[at] > max(LEAST, made.least * made.error)
                for p, at, made in zip(ps, tested, map(predictions.get, tested), strict=True)
            )
    return failed / histories


def _predictions(kind, history):
    """{condition: the prediction of its newest session}, of those with sessions enough."""
    means, counts = history.means[:, :-1], history.counts
    cuts = np.zeros(len(means), dtype=int)
    for found in shared_changes.find(means):
        for at in found.members:
            cuts[at] = max(cuts[at], found.change.at)
    variance = kind.scatter**2 * USUAL_REPEATS / 2
    made, farthest = {}, np.zeros(means.shape[1])
    for at, cut in enumerate(cuts):
        base = np.flatnonzero(np.isfinite(means[at]) & (np.arange(means.shape[1]) >= cut))
        if len(base) >= gate.MIN_SESSIONS:
            clipped = change_points.without_outliers(means[at, base])
            made[at] = prediction.predict(clipped, counts[at, base], variance, counts[at, -1], None)
            off = prediction.past_deviations(means[at, base], clipped)
            farthest[base] = np.maximum(farthest[base], off)
    known = farthest[farthest > 0]
    least = prediction.exceeded(known, [*made.values()]) if made else 0.0
    return {at: dataclasses.replace(one, least=least) for at, one in made.items()}


if __name__ == "__main__":
    main()
