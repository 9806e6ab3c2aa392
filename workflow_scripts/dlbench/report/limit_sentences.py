"""One sentence for each series: its efficiency on the most devices, and what costs how much of it.

- With probes, the sentence names each resolved part (analysis/limits.py) with its loss, and the
  residual as "not resolved" if the interval of the residual is above zero. Without probes it
  sets an all-reduce at the speed of the baselines beside the loss.
- A series without an interval has no sentence. One with neither probes nor baselines is counted.
- The largest loss comes first. Conditions with probes at which no series ends come last, with the
  largest part of their step.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.analysis import base_flags, explanations, judge, limits, scaling_series
from dlbench.analysis.estimates import Estimate
from dlbench.analysis.limits import AllReduce, Limit, Part
from dlbench.common import phrases
from dlbench.common.run_fields import READS, tagged
from dlbench.report import findings
from dlbench.report.findings import INDICATED, OPEN, SHOWN
from dlbench.study import wording
from dlbench.study.runs import CONDITION
from dlbench.tables import cells
from dlbench.tables.cells import Row
from dlbench.trainer.reading.inputs import INPUT_ONLY

PART_LABELS = {
    explanations.INPUT: "waiting for input",
    explanations.COPIES: "waiting for copies to the device",
    explanations.EXCHANGE: "exposed exchange of gradients",
    explanations.SHARING: "devices that slow one another down",
    explanations.WAITS: "waiting for each step's loss",
    explanations.COMPUTATION: "computation",
    explanations.REST: "the remaining step",
}
# Fields in which a run with a model and one in mode input agree if they read alike.
SAME_READING = ("site", *tagged(READS))
FEWER_ITEMS = "computing fewer items at once"
MIN_NAMED = 0.005  # of the efficiency, that is named


@dataclass(frozen=True)
class Sentence:
    """What limits one series or condition.

    Attributes:
        subject: the series or condition.
        rows: texts (part, share, 95 % interval, ms of a step, note).
        share_of: what the shares are of.
    """

    subject: str
    sentence: str
    evidence: str
    rows: list[tuple[str, ...]]
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    share_of: str = "efficiency lost"


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
    return Sentences([*of_series, *of_steps(others, own_runs)], unexplained)


def _sentence(limit, subject, text):
    is_resolved = limit.is_resolved and limit.agrees and bool(limit.resolved)
    runs = (limit.point.runs, limit.base.runs)
    probes = [part.loss.runs for part in limit.resolved]
    enough = min(*map(len, runs), *probes) >= judge.MIN_RUNS
    disturbed = base_flags.is_disturbed(*runs[0], *runs[1])
    evidence = SHOWN if is_resolved and enough and not disturbed else INDICATED
    tables = ["speedups"] + ["explanations"] * bool(limit.parts)
    return Sentence(
        subject=subject,
        sentence=text,
        evidence=evidence if is_resolved or (limit.is_resolved and not limit.parts) else OPEN,
        rows=list(_rows(limit)) if limit.is_resolved else [],
        tables=(*tables, *["baselines"] * bool(limit.all_reduce)),
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
    if limit.parts and not limit.agrees:
        resolved = _number(limit.resolved_loss)
        return f"{start}; its probes lose more ({resolved}), so the loss is not split into parts."
    named = [part for part in limit.resolved if part.loss.value >= MIN_NAMED]
    lost = [f"{_number(part.loss.value)} {_resolved_label(part, limit)}" for part in named]
    if lost and limit.residual.low > 0:
        lost.append(f"{_number(limit.residual.value)} not resolved")
    if lost:
        return f"{start}; lost: {', '.join(lost)}."
    clauses = ["the probes do not resolve what costs it"] if limit.parts else []
    attained = limit.all_reduce
    if attained and attained.loss and attained.loss.value >= MIN_NAMED:
        share, interval = _share(attained.loss)
        clauses.append(
            "an all-reduce that overlaps with nothing, at the "
            f"{_speed(attained, attained.time.value)} GB/s of the baselines, would take "
            f"{share} ({interval}) of the {_number(limit.loss.value)} lost"
        )
    return f"{start}; {'; '.join(clauses)}." if clauses else ""


def _part_label(part: Part, limit: Limit) -> str:
    if part.name == explanations.COMPUTATION and limit.series.kind == "strong":
        return FEWER_ITEMS
    shared = f" and {PART_LABELS[explanations.SHARING]}" if part.shares_node else ""
    return f"{PART_LABELS[part.name]}{shared}"


def _resolved_label(part: Part, limit: Limit) -> str:
    """The label of a resolved part; an all-reduce has its bandwidth beside the attainable one."""
    attained = limit.all_reduce
    if part.name != explanations.EXCHANGE or part.shares_node or not attained:
        return _part_label(part, limit)
    speeds = [_speed(attained, time.value) for time in (part.step_time, attained.time)]
    return f"exposed all-reduce at {speeds[0]} of {speeds[1]} GB/s attainable"


def _rows(limit):
    """The rows of Sentence.rows."""
    yield "all", *_share(limit.loss), "", "1 less the efficiency"
    for part in limit.parts:
        note = f"not resolved: {part.note}" if part.note else _resolved_label(part, limit)
        label, time = _part_label(part, limit), _milliseconds(part.step_time.value)
        yield label, *_share(part.loss), time, "" if note == label else note
    if limit.parts and limit.agrees:
        yield "not resolved", *_share(limit.residual), "", ""
    if limit.all_reduce:
        attained = limit.all_reduce
        speed = _speed(attained, attained.time.value)
        note = f"expected at {speed} GB/s if nothing overlaps; the interval is of rounds"
        share = _share(attained.loss) if attained.loss else ("", "")
        yield "all-reduce by the baselines", *share, _milliseconds(attained.time.value), note


def of_steps(rows: Sequence[Row], runs: Sequence[Row] = ()) -> list[Sentence]:
    """What the step of each condition is made of, by rows of the table of explanations.

    `runs`: rows of the table of runs, of which those of mode input say what reading alone yields.
    """
    conditions: dict[str, list[Row]] = {}
    for row in rows:
        conditions.setdefault(row["run_id"], []).append(row)
    return [
        _of_step(parts, runs)
        for parts in conditions.values()
        if any(row.get("share") for row in parts)
    ]


def _of_step(rows, runs):
    resolved = sorted((row for row in rows if row["told_apart"]), key=lambda row: -row["share"])
    whole = (explanations.COMPUTATION, explanations.REST)
    others = [row for row in resolved if row["part"] not in whole]
    text, evidence = "What a step is made of cannot be resolved", OPEN
    if resolved:
        first = (others or resolved)[0]
        text = f"{100 * first['share']:.3g} % of a step is {PART_LABELS[first['part']]}"
        text += "" if others else ", and no other part is resolved"
        # Each part has as few probes as the fewest of them.
        enough = min(row["runs"] for row in resolved) >= judge.MIN_RUNS
        evidence = SHOWN if enough else INDICATED
    return Sentence(
        subject=rows[0]["combination"],
        sentence=f"{text}.",
        evidence=evidence,
        rows=[*map(_row_of_step, rows), *_reading_alone(rows, runs)],
        tables=("explanations", "runs"),
        figures=("inside_a_step",),
        share_of="share of a step",
    )


def _row_of_step(row):
    note = "" if row["told_apart"] else f"not resolved: {row['note']}"
    if not row.get("share"):
        return PART_LABELS[row["part"]], "", "", "", note
    per_s = row["share"] / row["step_time_s"]
    names = ("step_time_s", "step_time_ci95_low", "step_time_ci95_high")
    share = Estimate(*(math.nan if row[n] is None else row[n] * per_s for n in names), row["runs"])
    return PART_LABELS[row["part"]], *_share(share), _milliseconds(row["step_time_s"]), note


def _reading_alone(rows, runs):
    """A row with the mean rate of reading alone, if mode input was measured as well."""
    for own in (run for run in runs if run["run_id"] == rows[0]["run_id"]):
        modes = ((own["mode"], CONDITION), (INPUT_ONLY, SAME_READING))
        with_model, alone = (
            [
                run["images_per_second"]
                for run in runs
                if run["mode"] == mode and run.get("images_per_second")
                if all(run.get(name) == own.get(name) for name in names)
            ]
            for mode, names in modes
        )
        if with_model and alone:
            rates = [wording.number(statistics.fmean(rates)) for rates in (alone, with_model)]
            note = f"{rates[0]} items/s; with the model {rates[1]} items/s"
            yield "reading alone", "", "", "", note


def _share(estimate):
    if estimate.value != estimate.value:
        return "", ""
    ends = (estimate.low, estimate.high)
    return _number(estimate.value), "" if ends[0] != ends[0] else " to ".join(map(_number, ends))


def _number(share: float) -> str:
    """A share with two digits, as 0.84, 0.004 or -0.02 with a true minus."""
    text = f"{share:.2f}" if abs(share) >= MIN_NAMED or not share else f"{share:.1g}"
    return text.replace("-", "\u2212")


def _speed(attained: AllReduce, seconds: float) -> str:
    """The bus bandwidth in GB/s of an all-reduce of so many seconds."""
    return f"{attained.bus_bytes / seconds / 1e9:.2g}"


def _milliseconds(seconds):
    return "" if seconds != seconds else f"{1000 * seconds:.3g}"
