"""Sentences of the report: what was measured, on what, and what to beware of."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlbench.analysis import base_flags
from dlbench.common import phrases
from dlbench.log import event_fields
from dlbench.records import account, sessions
from dlbench.report import report_tables
from dlbench.results import run_rows
from dlbench.study import contradictions, wording
from dlbench.tables import cells
from dlbench.tables.cells import Row
from dlbench.trainer import engine

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
    """The distinct values, the commonest first."""
    counts = Counter(value for value in values if value)
    names = sorted(counts, key=lambda value: (-counts[value], value))
    more = f" and {len(names) - MAX_VALUES} more" if len(names) > MAX_VALUES else ""
    return ", ".join(names[:MAX_VALUES]) + more


def _dates(runs):
    """From the first start to the last end, days in UTC."""
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
