"""One sentence for each series: how much efficiency is lost on its most devices, and to what.

- What analysis/limits.py tells of probes is named with its share; what remains is said to be not
  told apart where it is shown to be there. Without probes the all-reduce of the baselines is set
  beside the loss, as what is to be expected.
- Nothing is said of a series without an interval, nor of one that neither probes nor baselines
  explain: those are counted.
- The largest loss stands first; conditions that are explained, but are the end of no series, come
  last, with the sentence of their step (step_findings.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis import base_flags, equivalence, explanations, limits, scaling_series
from dlbench.analysis.estimates import Estimate
from dlbench.analysis.limits import AllReduce, Limit, Part
from dlbench.common import phrases
from dlbench.report import findings, step_findings
from dlbench.report.findings import INDICATED, OPEN, SHOWN
from dlbench.study import wording
from dlbench.tables import timing_sources
from dlbench.tables.cells import Row

EXCHANGE_WORDS = "exposed exchange of gradients"
WORDS = step_findings.WORDS | {
    explanations.EXCHANGE: EXCHANGE_WORDS,
    explanations.SHARING: "devices that slow one another down",
}
FEWER_ITEMS = "computing fewer items at once"
LEAST = 0.005  # of the efficiency, that is named


@dataclass(frozen=True)
class Sentence:
    """What limits one series or condition.

    Attributes:
        place: what it is about.
        rows: texts (what, efficiency lost to it, 95 % interval, ms of a step, note), one of each
            part.
        text: more, in words; "" if the rows say it.
    """

    place: str
    words: str
    evidence: str
    rows: list[tuple[str, ...]]
    text: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]


@dataclass(frozen=True)
class Sentences:
    """All of a study; `unexplained` series lose efficiency, and nothing tells to what."""

    known: list[Sentence]
    unexplained: int


def sentences(
    runs: Sequence[Row],
    explained: Sequence[Row],
    baselines: Sequence[Row],
    speedups: Sequence[Row],
) -> Sentences:
    """The Sentences of a study.

    Args:
        runs, explained, baselines, speedups: rows of the tables of runs, explanations, baselines
            and speedups.
    """
    own = [row for row in runs if row.get("timing_source") != timing_sources.PUBLISHED]
    (own,) = findings.of_sites(own)
    series = [one for one in scaling_series.known_series(speedups, own) if one.kind]
    found = limits.of_series(series, explained, baselines)
    found.sort(key=lambda one: (not one.is_shown, -one.loss.value))
    rows = [one.series.row for one in found]
    names = findings.row_names(rows, ("nodes", "devices_per_node")) if rows else []
    told = {}
    for one, name in zip(found, names, strict=True):
        words = _words(one)
        if words:
            told[id(one)] = _sentence(one, f"{name}, {one.series.kind} scaling", words)
    ends = {
        run["run_id"]
        for one in found
        if id(one) in told and one.is_shown and one.parts
        for run in one.point.runs
    }
    steps = [
        _of_step(rows, own)
        for rows in _by_condition(explained)
        if rows[0]["run_id"] not in ends and any(row.get("share") for row in rows)
    ]
    unexplained = sum(one.is_shown and id(one) not in told for one in found)
    return Sentences([*told.values(), *steps], unexplained)


def _sentence(limit, place, words):
    is_told = limit.is_shown and limit.agrees and bool(limit.resolved)
    runs = (limit.point.runs, limit.base.runs)
    probes = [part.loss.runs for part in limit.resolved]
    enough = min(*map(len, runs), *probes) >= equivalence.FEWEST_RUNS
    disturbed = base_flags.is_disturbed(*runs[0], *runs[1])
    evidence = SHOWN if is_told and enough and not disturbed else INDICATED
    tables = ["speedups"] + ["explanations"] * bool(limit.parts)
    tables += ["baselines"] * bool(limit.all_reduce)
    return Sentence(
        place=place,
        words=words,
        evidence=evidence if is_told or (limit.is_shown and not limit.parts) else OPEN,
        rows=list(_rows(limit)) if limit.is_shown else [],
        text="",
        tables=tuple(tables),
        figures=("scaling", *["inside_a_step"] * bool(limit.parts)),
    )


def _words(limit: Limit) -> str:
    """The sentence, "" where the data carry none."""
    kind = limit.series.row.get("device_kind")
    devices = phrases.counted(limit.point.devices, wording.device(kind))
    low, high = (_number(1 - end) for end in (limit.loss.high, limit.loss.low))
    over = f" relative to {limit.base.runs[0]['strategy']}" if limit.base.borrowed else ""
    begin = f"{devices}: efficiency {_number(1 - limit.loss.value)} ({low} to {high}){over}"
    if not limit.is_shown:
        return f"{begin}; no loss is shown."
    expected = _expected(limit.all_reduce, limit.loss) if limit.all_reduce else ""
    if not limit.parts:
        return f"{begin}; {expected}." if expected else ""
    if not limit.agrees:
        told = _number(limit.resolved_loss)
        return f"{begin}; its probes lose more ({told}), so the loss is not split into parts."
    named = [part for part in limit.resolved if part.loss.value >= LEAST]
    lost = [f"{_number(part.loss.value)} {_told_words(part, limit)}" for part in named]
    if lost and limit.rest.low > 0:
        lost.append(f"{_number(limit.rest.value)} not told apart")
    if lost:
        return f"{begin}; lost: {', '.join(lost)}."
    begin = f"{begin}; the probes do not tell apart what is lost"
    return f"{begin}; {expected}." if expected else f"{begin}."


def _part_words(part: Part, limit: Limit) -> str:
    if part.name == explanations.COMPUTATION and limit.series.kind == "strong":
        return FEWER_ITEMS
    words = WORDS[part.name]
    if part.shares_node:
        return f"{words} and {WORDS[explanations.SHARING]}"
    return words


def _told_words(part: Part, limit: Limit) -> str:
    """A part that is told, of an all-reduce with its bandwidth."""
    if part.name != explanations.EXCHANGE or part.shares_node or not limit.all_reduce:
        return _part_words(part, limit)
    return f"exposed all-reduce {_bandwidth(part, limit.all_reduce)}"


def _bandwidth(part: Part, attained: AllReduce) -> str:
    """How fast an exposed all-reduce is, and how fast it could be."""
    exposed, could = part.step_time, attained.time
    speed, attainable = (_speed(attained.bus_bytes, time.value) for time in (exposed, could))
    if exposed.high < could.low:
        return f"(without overlap {_milliseconds(could.value)} ms at {attainable} GB/s attainable)"
    if exposed.low <= could.high:
        return f"at the {attainable} GB/s attainable"
    return f"at {speed} of {attainable} GB/s attainable"


def _expected(attained: AllReduce, loss: Estimate) -> str:
    """What an all-reduce at the speed of the baselines has to do with a loss; "" if not known."""
    if attained.loss is None or attained.loss.value < LEAST:
        return ""
    speed = _speed(attained.bus_bytes, attained.time.value)
    own, lost = _number(attained.loss.value), _number(loss.value)
    what = f"an all-reduce that overlaps with nothing, at the {speed} GB/s of the baselines,"
    if attained.loss.low > loss.high:
        return f"{what} would take {own}, more than the {lost} lost"
    if attained.loss.high < loss.low:
        return f"{what} would take {own} of the {lost} lost"
    return f"{what} would take all of the {lost} lost ({own})"


def _rows(limit):
    """The numbers behind the sentence, as texts."""
    yield "all", *_share(limit.loss), "", "1 less the efficiency"
    for part in limit.parts:
        note = f"not told: {part.note}" if part.note else _told_words(part, limit)
        note = "" if note == _part_words(part, limit) else note
        time = _milliseconds(part.step_time.value)
        yield _part_words(part, limit), *_share(part.loss), time, note
    if limit.parts and limit.agrees:
        yield "not told apart", *_share(limit.rest), "", ""
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
    text = f"{share:.2f}" if abs(share) >= LEAST or not share else f"{share:.1g}"
    return text.replace("-", "\u2212")


def _speed(size_bytes, seconds):
    return f"{size_bytes / seconds / 1e9:.2g}"


def _milliseconds(seconds):
    return "" if seconds != seconds else f"{1000 * seconds:.3g}"


def _by_condition(explained):
    conditions = {}
    for row in explained:
        conditions.setdefault(row["run_id"], []).append(row)
    return conditions.values()


def _of_step(rows, runs):
    (finding,) = step_findings.findings(rows, runs)
    headline = finding.headline.removesuffix(f": {rows[0]['combination']}")
    return Sentence(
        place=rows[0]["combination"],
        words=f"{headline}.",
        evidence=finding.evidence,
        rows=[],
        text=finding.text,
        tables=finding.tables,
        figures=("inside_a_step",),
    )
