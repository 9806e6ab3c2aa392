"""Sentences of the report: what was measured, on what, what to beware of, what limits each series.

The last are one for each series: its efficiency on the most devices, and what costs how much.
- With probes, the sentence names each resolved part (analysis/limits.py) with its loss, and the
  residual as "not resolved" if the interval of the residual is above zero. Without probes it
  sets an all-reduce at the speed of the baselines beside the loss.
- A series without an interval has no sentence. One with neither probes nor baselines is counted.
- The largest loss comes first. Conditions with probes at which no series ends come last, with the
  largest part of their step.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlbench.analysis import base_flags, judge, limits, scaling_series
from dlbench.analysis.estimates import Estimate
from dlbench.analysis.limits import AllReduce, Limit, Part
from dlbench.common import phrases
from dlbench.common.run_fields import READS, tagged
from dlbench.log import event_fields
from dlbench.records import account, sessions
from dlbench.report import findings, report_tables
from dlbench.report.findings import INDICATED, OPEN, SHOWN
from dlbench.results import run_rows
from dlbench.study import contradictions, wording
from dlbench.study.runs import CONDITION
from dlbench.tables import cells
from dlbench.tables.cells import Row
from dlbench.trainer import engine
from dlbench.trainer.reading.inputs import INPUT_ONLY

CUDA, VERSION = "CUDA runtime", " version"  # facts of runs: of the library cudart; of packages
MAX_EXAMPLES = 8  # of notes and other details of one caveat
MAX_VALUES = 4  # of a fact
MAX_PARTS = 3  # of the time of runs that are named
THROTTLED_PERCENT = 5  # of the periods of a quota
STATUS_LABELS = {"oom": "out of memory", "timeout": "over the time limit"}
# What the lead says of the runs with a status, after their number.
COUNTED = {
    "unstable": "of them unstable (steps stalled, or they were disturbed)",
    "stale": "out of date (code, data or environment changed)",
    "failed": "failed",
    **STATUS_LABELS,
    "skipped": "more skipped",
}
# Facts in which own runs may differ: (columns, what they are, digits that are shown).
CONFOUNDING = (
    (("device_model",), "device models", None),
    (("framework", "framework_version"), "versions", None),
    (("host",), "hosts", None),
    (("hardware_sha256",), "fingerprints of hardware", report_tables.SHORT),
    (("git_commit",), "commits of dlbench", report_tables.SHORT),
    (("release",), "releases of dlbench", None),
)


def lead(runs: list[Row], coverage: list[Row]) -> str:
    """The sentences that sum up the study: how many runs completed, and where."""
    if not coverage:
        return "This study has no runs."
    counts = Counter(row["status"] for row in coverage)
    of_config = len(coverage) - counts["excluded"] - counts["imported"]
    well = sum(counts[status] for status in event_fields.SUCCEEDED)
    texts = [f"{counts[status]} {what}" for status, what in COUNTED.items() if counts[status]]
    tried = of_config - counts["skipped"]
    texts.insert(0, f"{well} of {phrases.counted(tried, 'run')} completed")
    sentences = [f"{', '.join(texts)}." if of_config else "Everything was excluded."]
    own_runs = list(filter(cells.is_own, runs))
    machines, sites = (_commonest(row.get(n) for row in own_runs) for n in ("device_model", "site"))
    if well and (sites or machines):
        where = [f"on {sites}"] * bool(sites) + [f"({machines})"] * bool(machines)
        sentences.append(f"Measured {' '.join(where)}.")
    published = sum(row.get("timing_source") == cells.PUBLISHED for row in runs)
    others = {"imported run": len(runs) - published - len(own_runs), "published point": published}
    beside = [phrases.counted(count, noun) for noun, count in others.items() if count]
    return " ".join([*sentences, *[f"Beside them: {' and '.join(beside)}."] * bool(beside)])


def facts(
    runs: list[Row],
    sentinels: Sequence[Row],
    drift: Sequence[Row],
    spent_s: Mapping[str, float],
    prepared_s: Mapping[str, float],
) -> list[tuple[str, str]]:
    """(term, text) of what was measured and on what, as far as it is known.

    Args:
        runs, sentinels, drift: rows of the tables of runs and of drift.
        spent_s: seconds of each part of all runs together (dlbench/records/account.py).
        prepared_s: seconds of each rule that makes what runs need, all its jobs together.
    """
    if not runs:
        return []
    own_runs = list(filter(cells.is_own, runs))
    known = {sessions.session_of(row) for row in (*own_runs, *sentinels)}
    session_text = sessions.describe(len(known), len(sentinels), [row["verdict"] for row in drift])
    devices, nodes = (
        sorted({row[name] for row in runs if row.get(name)}) for name in ("devices", "nodes")
    )
    kinds = {row.get("device_kind") for row in runs}
    device = wording.device(kinds.pop() if len(kinds) == 1 else None)
    versions = (
        f"{row['framework']} {row['framework_version']}"
        for row in runs
        if row.get("framework_version")
    )
    conditions = report_tables.conditions(runs)
    repeats = _range_text(sorted({len(group) for _, group in conditions}), "run")
    scale = f"{_range_text(devices, device)} on {_range_text(nodes, 'node')}"
    terms = {
        "Combinations": f"{len(conditions)}, {repeats} each",
        "Models": _commonest(row.get("model") for row in runs),
        "Data": _commonest(row.get("dataset") for row in runs),
        "Site": _commonest(row.get("site") for row in runs),
        "Device": _commonest(row.get("device_model") for row in runs),
        "Scale": scale if devices else "",
        "Software": _commonest(versions),
        "Runtimes": _commonest(row.get("runtime") for row in runs),
        "Dates": _dates(runs),
        "Sessions": session_text if len(known) > 1 else "",
        "Wall time of all runs": time_spent(spent_s),
        "Prepared in": ", ".join(
            f"{phrases.duration(s)} ({rule.replace('_', ' ')})" for rule, s in prepared_s.items()
        ),
    }
    return [(term, text) for term, text in terms.items() if text]


def time_spent(spent_s: Mapping[str, float]) -> str:
    """What the wall time of runs was for, its largest parts; "" if nothing is known.

    >>> time_spent({"imports": 30.0, "steps": 60.0, "shutdown": 10.0})
    '100 s: 60 % in training steps, warm-up included (goodput), 30 % imports, 10 % shutdown'
    """
    whole_s = sum(spent_s.values())
    if not whole_s:
        return ""
    productive = sum(spent_s.get(part, 0.0) for part in account.PRODUCTIVE)
    others = {part: s for part, s in spent_s.items() if part not in account.PRODUCTIVE}
    largest = sorted(others, key=lambda part: -others[part])[:MAX_PARTS]
    shares = {part: round(100 * others[part] / whole_s) for part in largest}
    texts = [f"{share} % {part.replace('_', ' ')}" for part, share in shares.items() if share]
    goodput = f"{100 * productive / whole_s:.0f} % in training steps, warm-up included (goodput)"
    return f"{phrases.duration(whole_s)}: {', '.join([goodput, *texts])}"


def _range_text(numbers, noun):
    """As in `1 to 2 nodes`, of sorted numbers; `? nodes` where none is known."""
    if not numbers:
        return f"? {noun}s"
    last = phrases.counted(numbers[-1], noun)
    return last if len(numbers) == 1 else f"{numbers[0]} to {last}"


def _commonest(values):
    counts = Counter(value for value in values if value)
    names = sorted(counts, key=lambda value: (-counts[value], value))
    more = f" and {len(names) - MAX_VALUES} more" if len(names) > MAX_VALUES else ""
    return ", ".join(names[:MAX_VALUES]) + more


def _dates(runs):
    starts = [row["started_at"] for row in runs if row.get("started_at")]
    ends = [row["ended_at"] for row in runs if row.get("ended_at")]
    if not starts:
        return ""
    days = dict.fromkeys(f"{date:%Y-%m-%d}" for date in (min(starts), max([*ends, *starts])))
    return f"{' to '.join(days)} (UTC)"


def caveats(
    runs: list[Row],
    speedups: list[Row],
    comparisons: list[Row],
    coverage: list[Row],
    recorded: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What limits the numbers of this study: which rows, and what is to be known of them.

    Args:
        runs, speedups, comparisons, coverage: rows of the tables of these names.
        recorded: of each run the facts that its record has, by name.
    """
    return [
        *_on_repeats(runs),
        *_on_sources(runs),
        *_on_bases(speedups, "speedup", "base_mismatch", "point and base"),
        *_on_bases(comparisons, "comparison", "base_flags", "the two sides"),
        *_on_software(comparisons, list(zip(runs, recorded, strict=True))),
        *_on_confounding(list(filter(cells.is_own, runs))),
        *_on_checks(runs, coverage),
    ]


def _caveat(rows: Collection[Any], what: str, details: Iterable[str] = (), noun: str = "run"):
    """One caveat on some rows, with the commonest details; none without rows."""
    if rows:
        found = [text for text, _ in Counter(details).most_common()]
        more = [f"{len(found) - MAX_EXAMPLES} more"] * (len(found) > MAX_EXAMPLES)
        shown = f" ({'; '.join(found[:MAX_EXAMPLES] + more)})" if found else ""
        yield f"{phrases.counted(len(rows), noun)}: {what}{shown}."


def _on_repeats(runs):
    groups = [
        [row for row in group if row["status"] in event_fields.SUCCEEDED]
        for _, group in report_tables.conditions(runs)
    ]
    for count, what in (
        (1, "measured by a single run, so no interval, and no verdict rests on them"),
        (2, "measured by two runs, so the intervals are wide"),
    ):
        yield from _caveat([g for g in groups if len(g) == count], what, noun="combination")
    disturbed = [row for row in runs if base_flags.is_disturbed(row)]
    # Records are compared with their logs word for word, so the words in them stay.
    words = [row["disturbed"].replace("others ", "other processes ") for row in disturbed]
    what = "disturbed; no statement about speed that uses them is labelled shown"
    yield from _caveat(disturbed, what, words[:1])
    others = [row for row in runs if not base_flags.is_disturbed(row)]
    shares = [row.get("quota_throttled_percent") or 0 for row in others]
    if limited := [percent for percent in shares if percent > THROTTLED_PERCENT]:
        what = f"stopped by a quota of CPU time in up to {max(limited):.0f} % of its periods"
        yield from _caveat(limited, f"{what}; their rates are those of the quota")
    what = "unstable, not disturbed; steps stalled, so the mean is longer than a typical step"
    yield from _caveat([row for row in others if row["status"] == "unstable"], what)


def _on_sources(runs):
    sources: dict[tuple[bool, str], list[Row]] = {}
    for row in runs:
        if row.get("timing_source") not in (None, cells.MEASURED):
            sources.setdefault((cells.is_own(row), row["timing_source"]), []).append(row)
    for (is_own, timing), rows in sorted(sources.items()):
        what, noun = f"imported from logs of {timing}", "run"
        if is_own:
            what = f"timed by the program itself, in a log of {timing}"
        elif timing == cells.PUBLISHED:
            noun, what = "row", "published, not measured here; no finding rests on them"
        origins = [] if is_own else [row["source"] for row in rows if row.get("source")]
        yield from _caveat(rows, what, origins, noun)
    noted = [row for row in runs if row.get("notes")]
    notes = sorted(note for row in noted for note in row["notes"].split("; ") if note)
    yield from _caveat(noted, "with notes", phrases.merged([""] * len(notes), notes))


def _on_bases(rows, noun, column, sides):
    flagged = [row[column] for row in rows if row.get(column)]
    for flags, count in sorted(Counter(flagged).items(), key=lambda item: (-item[1], item[0])):
        yield from _caveat([flags] * count, base_flags.clause(flags, sides), noun=noun)


def _on_software(comparisons, runs):
    """In what frameworks and environments differ that are compared; `runs`: with their facts."""
    frameworks = _compared(comparisons, "framework")
    designs = {name: design for name in frameworks if (design := engine.by_design(name))}
    yield from _unlike("Frameworks differ by design (docs/training.md)", designs)
    loaded = _facts_by("framework", frameworks, runs, CUDA)
    loaded = {name: text for name, text in loaded.items() if text}
    yield from _unlike("Frameworks have loaded different CUDA runtimes", loaded)
    environments = _compared(comparisons, "environment")
    for fact in dict.fromkeys(fact for _, facts in runs for fact in facts):
        if fact.endswith(VERSION):
            found = _facts_by("environment", environments, runs, fact)
            yield from _unlike(f"Environments differ in {fact.removesuffix(VERSION)}", found)


def _facts_by(field, names, runs, fact):
    """{value of a field: what its runs have of a fact}, of the values that any run has."""
    found: dict[str, set[str]] = {}
    for row, facts in runs:
        if row.get(field) in names:
            found.setdefault(row[field], set()).update(filter(None, [facts.get(fact)]))
    return {name: " and ".join(sorted(found[name])) for name in names if name in found}


def _compared(comparisons, field) -> Iterable[str]:
    """The values of a field on either side of comparisons; a base may have more in its name."""
    rows = [row for row in comparisons if row["field"] == field]
    names = (name for row in rows for name in (row["base"], row[field]) if name)
    return sorted({name.partition(" ")[0] for name in names})


def _unlike(what: str, values: Mapping[str, str]) -> Iterator[str]:
    if len(set(values.values())) > 1:
        yield f"{what}: {'; '.join(f'{name} {text}' for name, text in values.items() if text)}."


def _on_confounding(own_runs):
    for names, things, digits in CONFOUNDING:
        known = [row for row in own_runs if all(row.get(name) for name in names)]
        values = Counter(" ".join(row[name] for name in names)[:digits] for row in known)
        if len(values) > 1:
            yield f"Runs are of {len(values)} {things}: {_commonest(values)}."
    software = {}
    for row in own_runs:
        if row.get("software_sha256"):
            key = tuple(row.get(name) for name in ("environment", "runtime", "image_digest"))
            software.setdefault(key, []).append(row["software_sha256"])
    for (environment, runtime, _), fingerprints in software.items():
        if len(set(fingerprints)) > 1:
            what = f"of environment {environment} ({runtime}), whose software changed between them"
            yield from _caveat(fingerprints, what)
    what = "of files that differ from their commit or release; each record has the code's digest"
    yield from _caveat(
        [r for r in own_runs if r.get("git_dirty") or ".changed" in str(r.get("release"))], what
    )


def _on_checks(runs, coverage):
    differs = [why for row in runs if (why := run_rows.disagreement(row.get("epochs_check")))]
    yield from _caveat(differs, "the clock and the steps give different throughputs", differs[:1])
    opposed = [why for row in runs if (why := row.get(contradictions.REASON))]
    what = "numbers contradict one another, so that nothing is compared with them"
    yield from _caveat(opposed, what, opposed[:1])
    unlike = [row["repeats_differ"] for row in runs if row.get("repeats_differ")]
    yield from _caveat(unlike, "unlike the first repeat of their combination", unlike)
    stale = [row for row in coverage if row["status"] == "stale"]
    yield from _caveat(stale, "stale; code, data or environment has changed since")


PART_LABELS = {
    limits.INPUT: "waiting for input",
    limits.COPIES: "waiting for copies to the device",
    limits.EXCHANGE: "exposed exchange of gradients",
    limits.SHARING: "devices that slow one another down",
    limits.WAITS: "waiting for each step's loss",
    limits.COMPUTATION: "computation",
    limits.REST: "the remaining step",
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
    if part.name == limits.COMPUTATION and limit.series.kind == "strong":
        return FEWER_ITEMS
    shared = f" and {PART_LABELS[limits.SHARING]}" if part.shares_node else ""
    return f"{PART_LABELS[part.name]}{shared}"


def _resolved_label(part: Part, limit: Limit) -> str:
    """The label of a resolved part; an all-reduce has its bandwidth beside the attainable one."""
    attained = limit.all_reduce
    if part.name != limits.EXCHANGE or part.shares_node or not attained:
        return _part_label(part, limit)
    speeds = [_speed(attained, time.value) for time in (part.step_time, attained.time)]
    return f"exposed all-reduce at {speeds[0]} of {speeds[1]} GB/s attainable"


def _rows(limit):
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
    whole = (limits.COMPUTATION, limits.REST)
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
