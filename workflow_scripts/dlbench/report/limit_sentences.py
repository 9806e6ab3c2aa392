"""One sentence for each series: its efficiency on the most devices, and what costs how much of it.

- With probes, the sentence names each resolved part (analysis/limits.py) with its loss, and the
  residual as "not resolved" if the interval of the residual is above zero. Without probes it
  compares the loss with that to an all-reduce at the speed of the baselines.
- A series without an interval has no sentence. One with neither probes nor baselines is counted.
- The largest loss comes first. Conditions with probes at which no series ends come last, with the
  sentence about their step (findings.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.analysis import base_flags, explanations, judge, limits, scaling_series
from dlbench.analysis.estimates import Estimate
from dlbench.analysis.limits import AllReduce, Limit, Part
from dlbench.common import phrases
from dlbench.report import findings
from dlbench.report.findings import INDICATED, OPEN, SHOWN
from dlbench.study import wording
from dlbench.tables import cells
from dlbench.tables.cells import Row

PART_LABELS = findings.PART_LABELS | {
    explanations.EXCHANGE: "exposed exchange of gradients",
    explanations.SHARING: "devices that slow one another down",
}
FEWER_ITEMS = "computing fewer items at once"
MIN_NAMED = 0.005  # of the efficiency, that is named


@dataclass(frozen=True)
class Sentence:
    """What limits one series or condition.

    Attributes:
        subject: the series or condition.
        rows: texts (part, efficiency lost to it, 95 % interval, ms of a step, note).
        details: further sentences; "" if there are rows instead.
    """

    subject: str
    sentence: str
    evidence: str
    rows: list[tuple[str, ...]]
    details: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]


class Sentences(NamedTuple):
    """All of a study; the cause of the loss is unknown for `unexplained` series."""

    sentences: list[Sentence]
    unexplained: int


def sentences(
    runs: Sequence[Row],
    explained: Sequence[Row],
    baselines: Sequence[Row],
    speedups: Sequence[Row],
) -> Sentences:
    """The Sentences of a study, of rows of these tables; `explained` is that of explanations."""
    own_runs = [row for row in runs if row.get("timing_source") != cells.PUBLISHED]
    (own_runs,) = findings.hide_single_site(own_runs)
    series = [limit for limit in scaling_series.series_from_table(speedups, own_runs) if limit.kind]
    all_limits = limits.of_series(series, explained, baselines)
    all_limits.sort(key=lambda limit: (not limit.is_resolved, -limit.loss.value))
    rows = [limit.series.row for limit in all_limits]
    names = findings.row_names(rows, ("nodes", "devices_per_node")) if rows else []
    of_series, explained_ids, unexplained = [], set(), 0
    for limit, name in zip(all_limits, names, strict=True):
        text = _sentence_text(limit)
        if not text:
            unexplained += limit.is_resolved
            continue
        of_series.append(_sentence(limit, f"{name}, {limit.series.kind} scaling", text))
        if limit.is_resolved and limit.parts:
            explained_ids |= {run["run_id"] for run in limit.point.runs}
    others = [row for row in explained if row["run_id"] not in explained_ids]
    steps = findings.step_findings(others, own_runs)
    return Sentences([*of_series, *map(_of_step, steps)], unexplained)


def _sentence(limit, subject, text):
    is_resolved = limit.is_resolved and limit.agrees and bool(limit.resolved)
    runs = (limit.point.runs, limit.base.runs)
    probes = [part.loss.runs for part in limit.resolved]
    enough = min(*map(len, runs), *probes) >= judge.MIN_RUNS
    disturbed = base_flags.is_disturbed(*runs[0], *runs[1])
    evidence = SHOWN if is_resolved and enough and not disturbed else INDICATED
    tables = ["speedups"] + ["explanations"] * bool(limit.parts)
    tables += ["baselines"] * bool(limit.all_reduce)
    return Sentence(
        subject=subject,
        sentence=text,
        evidence=evidence if is_resolved or (limit.is_resolved and not limit.parts) else OPEN,
        rows=list(_rows(limit)) if limit.is_resolved else [],
        details="",
        tables=tuple(tables),
        figures=("scaling", *["inside_a_step"] * bool(limit.parts)),
    )


def _sentence_text(limit: Limit) -> str:
    """The sentence; "" if neither probes nor baselines explain the loss."""
    kind = limit.series.row.get("device_kind")
    devices = phrases.counted(limit.point.devices, wording.device(kind))
    low, high = (_number(1 - end) for end in (limit.loss.high, limit.loss.low))
    relative_to = f" relative to {limit.base.runs[0]['strategy']}" if limit.base.borrowed else ""
    start = f"{devices}: efficiency {_number(1 - limit.loss.value)} ({low} to {high}){relative_to}"
    if not limit.is_resolved:
        return f"{start}; no loss is shown."
    expected = _expected(limit.all_reduce, limit.loss) if limit.all_reduce else ""
    if not limit.parts:
        return f"{start}; {expected}." if expected else ""
    if not limit.agrees:
        resolved = _number(limit.resolved_loss)
        return f"{start}; its probes lose more ({resolved}), so the loss is not split into parts."
    named = [part for part in limit.resolved if part.loss.value >= MIN_NAMED]
    lost = [f"{_number(part.loss.value)} {_resolved_label(part, limit)}" for part in named]
    if lost and limit.residual.low > 0:
        lost.append(f"{_number(limit.residual.value)} not resolved")
    if lost:
        return f"{start}; lost: {', '.join(lost)}."
    start = f"{start}; the probes do not resolve what costs it"
    return f"{start}; {expected}." if expected else f"{start}."


def _part_label(part: Part, limit: Limit) -> str:
    if part.name == explanations.COMPUTATION and limit.series.kind == "strong":
        return FEWER_ITEMS
    label = PART_LABELS[part.name]
    if part.shares_node:
        return f"{label} and {PART_LABELS[explanations.SHARING]}"
    return label


def _resolved_label(part: Part, limit: Limit) -> str:
    """The label of a resolved part; an all-reduce has its bandwidth in it."""
    if part.name != explanations.EXCHANGE or part.shares_node or not limit.all_reduce:
        return _part_label(part, limit)
    return f"exposed all-reduce {_bandwidth_note(part, limit.all_reduce)}"


def _bandwidth_note(part: Part, attained: AllReduce) -> str:
    """The bandwidth of an exposed all-reduce beside the attainable one."""
    exposed, could = part.step_time, attained.time
    speed, attainable = (_speed(attained.bus_bytes, time.value) for time in (exposed, could))
    if exposed.high < could.low:
        return f"(without overlap {_milliseconds(could.value)} ms at {attainable} GB/s attainable)"
    if exposed.low <= could.high:
        return f"at the {attainable} GB/s attainable"
    return f"at {speed} of {attainable} GB/s attainable"


def _expected(attained: AllReduce, loss: Estimate) -> str:
    """A clause that compares a loss with that to an all-reduce at the baselines' speed, or ""."""
    if attained.loss is None or attained.loss.value < MIN_NAMED:
        return ""
    speed = _speed(attained.bus_bytes, attained.time.value)
    expected, lost = _number(attained.loss.value), _number(loss.value)
    all_reduce = f"an all-reduce that overlaps with nothing, at the {speed} GB/s of the baselines,"
    if attained.loss.low > loss.high:
        return f"{all_reduce} would take {expected}, more than the {lost} lost"
    if attained.loss.high < loss.low:
        return f"{all_reduce} would take {expected} of the {lost} lost"
    return f"{all_reduce} would take all of the {lost} lost ({expected})"


def _rows(limit):
    """The rows of Sentence.rows."""
    yield "all", *_share(limit.loss), "", "1 less the efficiency"
    for part in limit.parts:
        note = f"not resolved: {part.note}" if part.note else _resolved_label(part, limit)
        note = "" if note == _part_label(part, limit) else note
        time = _milliseconds(part.step_time.value)
        yield _part_label(part, limit), *_share(part.loss), time, note
    if limit.parts and limit.agrees:
        yield "not resolved", *_share(limit.residual), "", ""
    if limit.all_reduce:
        attained = limit.all_reduce
        speed = _speed(attained.bus_bytes, attained.time.value)
        note = f"expected at {speed} GB/s if nothing overlaps; the interval is of rounds"
        share = _share(attained.loss) if attained.loss else ("", "")
        yield "all-reduce by the baselines", *share, _milliseconds(attained.time.value), note


def _share(estimate):
    if estimate.value != estimate.value:
        return "", ""
    ends = (estimate.low, estimate.high)
    return _number(estimate.value), "" if ends[0] != ends[0] else " to ".join(map(_number, ends))


def _number(share: float) -> str:
    """A share with two digits, as 0.84, 0.004 or -0.02 with a true minus."""
    text = f"{share:.2f}" if abs(share) >= MIN_NAMED or not share else f"{share:.1g}"
    return text.replace("-", "\u2212")


def _speed(size_bytes, seconds):
    return f"{size_bytes / seconds / 1e9:.2g}"


def _milliseconds(seconds):
    return "" if seconds != seconds else f"{1000 * seconds:.3g}"


def _of_step(finding):
    headline, _, condition = finding.headline.partition(": ")
    return Sentence(
        subject=condition,
        sentence=f"{headline}.",
        evidence=finding.evidence,
        rows=[],
        details=finding.text,
        tables=finding.tables,
        figures=("inside_a_step",),
    )
