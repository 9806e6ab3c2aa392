"""What a step of a run is made of: the table of explanations, from its probes.

- Each kind of probe leaves out what the one before it leaves out, and one thing more
  (dlbench/study/probes.py). The thing costs the difference of the mean step times with and without
  it, with Welch's interval over runs. The last kind is computation alone, or of another program
  what its parameters do not leave out: parts add up to a step.
- What overlaps with computation costs nothing here: of input, of copies to the devices and of
  exchange a part is the time that a step waits. Copies of a run exchange nothing, and none waits
  for the slowest, so that the wait for stragglers counts as exchange.
- A part is resolved (column `told_apart`) if its interval is above zero, all its probes are
  reliable, and one session measured them.
"""

import math
import statistics
from collections.abc import Iterator, Sequence

from dlbench.log.event_fields import SUCCEEDED
from dlbench.study import probes
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.tables import table_columns
from dlbench.tables.cells import Row

INPUT, COPIES, EXCHANGE, SHARING, WAITS, COMPUTATION, REST = PARTS = tuple(table_columns.PARTS)
PROBE_LABELS = {
    probes.WHOLE: "of the whole step",
    probes.READING: "without reading",
    probes.COPIES: "without input",
    probes.EXCHANGE: "without exchange",
    probes.OTHER_DEVICES: "on one device",
    probes.WAITS: "without waits",
}
PART_BY_KIND = {probes.READING: INPUT, probes.COPIES: COPIES, probes.EXCHANGE: EXCHANGE}
PART_BY_KIND[probes.WAITS] = WAITS
CONFIDENCE = 0.95
INCLUDES_ZERO = "its interval includes zero"


def rows(study: Study, runs: Sequence[Row]) -> list[Row]:
    """Rows of the table of explanations: one for each part of each condition that is explained.

    `runs`: rows of the table of runs, those of probes among them.
    """
    by_id = {row["run_id"]: row for row in runs}
    conditions: dict[Run, list[Run]] = {}
    for run in sorted(study.without_probes, key=lambda run: run.repeat):
        if run.id in study.explained:
            conditions.setdefault(run.combination, []).append(run)
    explained: list[Row] = []
    for repeats in sorted(conditions.values(), key=lambda repeats: repeats[0].id):
        probes_by_kind = {
            kind: [by_id.get(study.explained[run.id][kind]) for run in repeats]
            for kind in study.explained[repeats[0].id]
        }
        name = study.labels[repeats[0].id].rpartition(", repeat")[0]
        common = {"study": study.name, "run_id": repeats[0].id, "combination": name}
        last = REST if repeats[0].is_external else COMPUTATION
        explained += [common | part for part in _parts(probes_by_kind, last)]
    return explained


def step_time_s(row: Row | None) -> float | None:
    """Seconds of a step of a run, by its row of the table of runs; None if it did not complete."""
    if row is None or row["status"] not in SUCCEEDED or not row.get("images_per_second"):
        return None
    return row["global_batch"] / row["images_per_second"]  # of copies: the mean over them


def _parts(probes_by_kind: dict[str, list[Row | None]], last: str) -> Iterator[Row]:
    """A row for each part, without what the parts of a condition have in common.

    `last`: the part that is left when all others are left out.
    """
    kinds = list(probes_by_kind)
    whole_s = _times(probes_by_kind[kinds[0]])
    next_kinds: list[str | None] = [*kinds[1:], None]
    for kind, next_kind in zip(kinds, next_kinds, strict=True):
        sides = [probes_by_kind[kind], *([probes_by_kind[next_kind]] if next_kind else [])]
        times = [_times(side) for side in sides]
        row: Row = {
            "part": _part_name(next_kind, kinds) if next_kind else last,
            "runs": min(map(len, times)),
            "told_apart": False,
        }
        if not all(times):
            missing = next_kind if next_kind and times[0] else kind
            yield row | {"note": f"no probe {PROBE_LABELS[missing]} completed"}
            continue
        value, low, high = _estimate(*times)
        row |= {"step_time_s": value, "step_time_ci95_low": low, "step_time_ci95_high": high}
        row["share"] = value / statistics.fmean(whole_s) if whole_s else None
        note = _why_unreliable([probe for side in sides for probe in side if step_time_s(probe)])
        if not note and low is None:
            note = "one run: no interval"
        elif not note and low <= 0:
            note = INCLUDES_ZERO
        yield row | {"told_apart": not note, "note": note or None}


def _part_name(kind, kinds):
    """The part that a kind of probe leaves out; `sharing` only if copies were measured."""
    if kind == probes.OTHER_DEVICES:
        return SHARING if probes.EXCHANGE in kinds else EXCHANGE
    return PART_BY_KIND[kind]


def _times(side):
    return [seconds for row in side if (seconds := step_time_s(row))]


def _estimate(times, others=None):
    """(mean, ends of its interval) of times, or of how much longer they are than others."""
    from scipy import stats  # late: it takes half a second, and few studies are explained

    value = statistics.fmean(times) - (statistics.fmean(others) if others else 0.0)
    if min(len(times), len(others or times)) < 2:
        return value, None, None
    test = (
        stats.ttest_ind(times, others, equal_var=False) if others else stats.ttest_1samp(times, 0)
    )
    interval = test.confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    # Equal times have no scatter that an interval could be made of.
    return (value, None, None) if math.isnan(low) else (value, low, high)


def _why_unreliable(rows):
    """Why a difference of probes is unreliable; "" if it is reliable."""
    unstable = sum(row["status"] == "unstable" for row in rows)
    if unstable:
        return f"{unstable} of {len(rows)} probes were disturbed"
    if len({row.get("session") for row in rows}) > 1:
        return "its probes were measured in several sessions"
    return ""
