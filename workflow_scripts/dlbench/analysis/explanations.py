"""What a step of a run is made of: the table of explanations, from its probes.

- Each probe lacks what the one before it lacks, and one thing more (dlbench/study/probes.py). What
  a thing costs is the difference of the mean times of a step with and without it, with Welch's
  interval; the unit is the run. The last probe is computation. So the parts add up to the step.
- What is done beside computation costs nothing here: of the input and the exchange this is the
  part that a step waits for. Copies exchange nothing, and none waits for the slowest: the wait for
  stragglers is in the exchange.
- A part is told apart if its interval is above zero, all its probes are to be relied on, and one
  session measured them.
"""

import math
import statistics
from collections.abc import Iterator, Sequence

from dlbench.log.event_fields import ENDED_WELL
from dlbench.study import probes
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.tables.cells import Row

INPUT, EXCHANGE, SHARING, WAITS, COMPUTATION = PARTS = (
    "input",
    "exchange",
    "sharing",
    "waits",
    "computation",
)
WORDS = {
    probes.WHOLE: "of the whole step",
    probes.INPUT: "without input",
    probes.EXCHANGE: "without exchange",
    probes.OTHER_DEVICES: "on one device",
    probes.WAITS: "without waits",
}
CONFIDENCE = 0.95
NO_TIME = "its interval includes zero"


def rows(study: Study, probe_rows: Sequence[Row]) -> list[Row]:
    """Rows of the table of explanations: one for each part of each condition that is explained.

    Args:
        probe_rows: rows of the table of probes.
    """
    by_id = {row["run_id"]: row for row in probe_rows}
    conditions: dict[Run, list[Run]] = {}
    for run in sorted(study.without_probes, key=lambda run: run.repeat):
        if run.id in study.explained:
            conditions.setdefault(run.combination, []).append(run)
    made: list[Row] = []
    for repeats in sorted(conditions.values(), key=lambda repeats: repeats[0].id):
        of_kinds = {
            kind: [by_id.get(study.explained[run.id][kind]) for run in repeats]
            for kind in study.explained[repeats[0].id]
        }
        name = study.labels[repeats[0].id].rpartition(", repeat")[0]
        common = {"study": study.name, "run_id": repeats[0].id, "combination": name}
        made += [common | part for part in _parts(of_kinds)]
    return made


def step_time_s(row: Row | None) -> float | None:
    """Seconds of a step of a run, from its throughput; None if it did not end well.

    Args:
        row: of the table of probes; None if there is none.
    """
    if row is None or row["status"] not in ENDED_WELL or not row.get("images_per_second"):
        return None
    return row["global_batch"] / row["images_per_second"]  # of copies: the mean over them


def _parts(of_kinds: dict[str, list[Row | None]]) -> Iterator[Row]:
    """A row for each part, without what the parts of a condition have in common."""
    kinds = list(of_kinds)
    whole = _times(of_kinds[kinds[0]])
    lacking: list[str | None] = [*kinds[1:], None]
    for kind, less in zip(kinds, lacking, strict=True):
        sides = [of_kinds[kind], *([of_kinds[less]] if less else [])]
        times = [_times(side) for side in sides]
        row: Row = {
            "part": _part(less, kinds),
            "runs": min(map(len, times)),
            "told_apart": False,
        }
        if not all(times):
            missing = less if less and times[0] else kind
            yield row | {"note": f"no probe {WORDS[missing]} ended well"}
            continue
        value, low, high = _estimate(*times)
        row |= {"step_time_s": value, "step_time_ci95_low": low, "step_time_ci95_high": high}
        row["share"] = value / statistics.fmean(whole) if whole else None
        doubt = _doubt([probe for side in sides for probe in side if step_time_s(probe)])
        within = "" if low is not None and low > 0 else NO_TIME
        within = within if low is not None else "one run: no interval"
        yield row | {"told_apart": not (doubt or within), "note": doubt or within or None}


def _part(left_out, kinds):
    """What the next probe is without: neighbours are apart where copies were measured."""
    if left_out == probes.OTHER_DEVICES:
        return SHARING if probes.EXCHANGE in kinds else EXCHANGE
    return {probes.INPUT: INPUT, probes.EXCHANGE: EXCHANGE, probes.WAITS: WAITS, None: COMPUTATION}[
        left_out
    ]


def _times(side):
    return [seconds for row in side if (seconds := step_time_s(row))]


def _estimate(times, without=None):
    """(mean, ends of its interval) of times, or of how much longer they are than others."""
    from scipy import stats  # late: it takes half a second, and few studies are explained

    value = statistics.fmean(times) - (statistics.fmean(without) if without else 0.0)
    if min(len(times), len(without or times)) < 2:
        return value, None, None
    test = (
        stats.ttest_ind(times, without, equal_var=False) if without else stats.ttest_1samp(times, 0)
    )
    interval = test.confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    # Equal times have no scatter that an interval could be made of.
    return (value, None, None) if math.isnan(low) else (value, low, high)


def _doubt(rows):
    """Why a difference of probes is not to be relied on; "" if it is."""
    unstable = sum(row["status"] == "unstable" for row in rows)
    if unstable:
        return f"{unstable} of {len(rows)} probes were disturbed"
    if len({row.get("session") for row in rows}) > 1:
        return "its probes were measured in several sessions"
    return ""
