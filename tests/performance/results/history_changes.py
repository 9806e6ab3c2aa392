"""What findings of a history are worth: rates of detection and of false alarms, errors of dates.

uv run python -m tests.performance.results.history_changes [--histories 5000] [--processes N]

Each row is a kind of histories of 50 conditions with a known truth
(tests/support/history/simulated_histories.py). Printed are, in the columns of docs/history.md,
- found: the share of histories in which the change is found, in its direction, and the median of
  how many sessions its date is off;
- date, size in the interval: the shares of those found;
- false: the share of histories with any other finding, of 50 conditions together; newest: with one
  that is provisional, because it is of the last one or two sessions.
The target: at most 5 % false in histories without seasons. The histories are drawn by one generator
and analysed by several processes, so that their number changes no result.
"""

import multiprocessing
import os

import numpy as np

from support.history.simulated_histories import Kind, outcome

from .. import bench

MAX_FALSE = 0.05
KINDS = {
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


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--histories", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    with multiprocessing.Pool(args.processes) as pool:
        measure(args, pool.map)


def measure(args, apply):
    chance = np.random.default_rng(43)
    print("| History | Found | Off by | Date | Size | False | Newest |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    false = {}
    for name, kind in KINDS.items():
        found = outcome(kind, args.histories, chance, apply)
        false[name] = found.false
        of_change = ["", "", "", ""]
        if kind.step:
            dated = "" if kind.ramp > 1 else f"{found.dated:.0%}"
            sized = "" if kind.ramp > 1 else f"{found.sized:.0%}"
            of_change = [f"{found.detected:.0%}", f"{found.off:.0f}", dated, sized]
        cells = [name, *of_change, f"{found.false:.1%}", f"{found.provisional:.1%}"]
        print(f"| {' | '.join(cells)} |".replace("%", " %").replace("  %", " %"), flush=True)
    steady = [share for name, share in false.items() if not name.startswith("seasons")]
    figures = bench.Figures(args.json)
    figures.add("most histories with a false finding, of kinds without seasons", max(steady),
                at_most=MAX_FALSE)  # fmt: skip


if __name__ == "__main__":
    main()
