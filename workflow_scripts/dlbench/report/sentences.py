"""Sentences of the report: what was measured, on what, and what to beware of."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from dlbench.analysis import base_flags
from dlbench.common import phrases
from dlbench.log import event_fields, event_log
from dlbench.records import account, sessions
from dlbench.report import report_tables
from dlbench.results import run_rows
from dlbench.study import contradictions, wording
from dlbench.tables import cells
from dlbench.tables.cells import Row
from dlbench.trainer import engine

MAX_NOTES = 8
MAX_PARTS = 3  # of the time of runs that are named
THROTTLED_PERCENT = 5  # of the periods of a quota
STATUS_LABELS = {"oom": "out of memory", "timeout": "over the time limit"}
# What became of runs that did not complete, as in `2 ran out of memory`.
ENDS = {
    "failed": "failed",
    "oom": "ran out of memory",
    "timeout": "exceeded the time limit",
    "skipped": "more was skipped",
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
    """The sentences that sum up the study: what is out of date, what completed, and where.

    `runs`: rows of the table of runs, in which stale runs have the status of their records.
    """
    if not coverage:
        return "This study has no runs."
    counts = Counter(row["status"] for row in coverage)
    of_config = len(coverage) - counts["excluded"] - counts["imported"]
    recorded = {row["run_id"]: row["status"] for row in runs}
    before = Counter(recorded.get(row["run_id"]) for row in coverage if row["status"] == "stale")
    texts = [_out_of_date(before, of_config)] if before else []
    if of_config > counts["stale"]:
        current = of_config - counts["stale"] - counts["skipped"]
        texts.append(_completed(counts, current, bool(before)))
    elif not of_config:
        texts.append("Everything was excluded.")
    own_runs = list(filter(cells.is_own, runs))
    machines, sites = (_commonest(row.get(n) for row in own_runs) for n in ("device_model", "site"))
    if any(counts[status] or before[status] for status in event_fields.SUCCEEDED):
        where = [f"on {sites}"] * bool(sites) + [f"({machines})"] * bool(machines)
        texts += [f"Measured {' '.join(where)}."] * bool(where)
    published = sum(row.get("timing_source") == cells.PUBLISHED for row in runs)
    others = {"imported run": len(runs) - published - len(own_runs), "published point": published}
    beside = [phrases.counted(count, noun) for noun, count in others.items() if count]
    return " ".join([*texts, *[f"Beside them: {' and '.join(beside)}."] * bool(beside)])


def _out_of_date(before, of_config):
    """How many runs are stale, and what they were before, as far as that is known."""
    stale = before.total()
    are, they = ("is", "it") if stale == 1 else ("are", "they")
    known = [
        f"{before[status]} {STATUS_LABELS.get(status, status)}"
        for status in (*event_fields.SUCCEEDED, *event_log.FAILED, "skipped")
        if before[status]
    ]
    if known:
        known[0] = known[0].replace(" ", " was " if known[0].startswith("1 ") else " were ", 1)
    then = f"; then {', '.join(known)}" if known else ""
    return (
        f"{_of_all(stale, of_config)} {are} out of date: code, data or environment changed after "
        f"{they} ran{then}."
    )


def _completed(counts, current, beside_stale):
    """How many of the runs that are not stale completed, and what became of the others."""
    well = sum(counts[status] for status in event_fields.SUCCEEDED)
    text = f"{_of_all(well, current)} completed"
    if beside_stale:
        text = f"Of the {phrases.counted(current, 'other run')}, {well} completed"
    if counts["unstable"]:
        text += f", {counts['unstable']} of them unstable (steps stalled, or they were disturbed)"
    ends = [f"{counts[status]} {what}" for status, what in ENDS.items() if counts[status]]
    if counts["skipped"] > 1:
        ends[-1] = ends[-1].replace("was", "were")
    return text + (f"; {', '.join(ends)}." if ends else ".")


def _of_all(part_of, total):
    if part_of == total > 0:
        return f"All {total} runs" if total > 1 else "The one run"
    return f"{part_of} of {total} runs"


def facts(
    runs: list[Row],
    conditions: list[tuple[Row, list[Row]]],
    sentinels: Sequence[Row] = (),
    drift: Sequence[Row] = (),
    spent_s: Mapping[str, float] | None = None,
) -> list[tuple[str, str]]:
    """(term, text) of what was measured and on what, as far as it is known.

    Args:
        runs, sentinels: rows of the runs table.
        drift: rows of that of drift.
        conditions: of the runs, from report_tables.conditions.
        spent_s: seconds of each part of all runs together (dlbench/records/account.py).
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
        "Wall time of all runs": time_spent(spent_s or {}),
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


def _commonest(values, most=4):
    """The distinct values, the commonest first."""
    counts = Counter(value for value in values if value)
    names = sorted(counts, key=lambda value: (-counts[value], value))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
    cuda: Mapping[str, Collection[str]],
    versions: Mapping[str, Mapping[str, Collection[str]]] | None = None,
) -> list[str]:
    """What limits the numbers of this study, one sentence each.

    Args:
        runs, speedups, comparisons, coverage: rows of the tables of these names.
        cuda: versions of CUDA's runtime library that the runs of each framework have loaded.
        versions: by environment, those of each package that its runs have had; absent: not known.
    """
    return [
        *_on_repeats(runs),
        *_on_sources(runs),
        *_on_bases(speedups, comparisons),
        *_on_frameworks(comparisons, cuda),
        *_on_environments(comparisons, versions or {}),
        *_on_confounding(list(filter(cells.is_own, runs))),
        *_on_checks(runs, coverage),
    ]


def _on_repeats(runs):
    sizes = Counter(
        sum(row["status"] in event_fields.SUCCEEDED for row in group)
        for _, group in report_tables.conditions(runs)
    )
    if sizes[1]:
        yield (
            f"{_are(sizes[1], 'combination')} measured by a single run: their numbers have no "
            "interval, and no verdict rests on them."
        )
    if sizes[2]:
        yield f"{_are(sizes[2], 'combination')} measured by two runs: the intervals are wide."
    disturbed = [row for row in runs if base_flags.is_disturbed(row)]
    if disturbed:
        single = len(disturbed) == 1
        # Records are compared with their logs word for word, so the words in them stay.
        example = disturbed[0]["disturbed"].replace("others ", "other processes ")
        example = example if single else f"for example, {example} in one run"
        yield (
            f"{phrases.counted(len(disturbed), 'run')} {'was' if single else 'were'} disturbed "
            f"({example}). No statement about speed that uses such a run is labelled shown."
        )
    others = [row for row in runs if not base_flags.is_disturbed(row)]
    shares = [row.get("quota_throttled_percent") or 0 for row in others]
    if limited := [percent for percent in shares if percent > THROTTLED_PERCENT]:
        yield (
            f"A quota of CPU time stopped {phrases.counted(len(limited), 'run')} in up to "
            f"{max(limited):.0f} % of its periods: their rates are those of the quota."
        )
    if stalled := sum(row["status"] == "unstable" for row in others):
        more = any(row["status"] == "unstable" for row in disturbed)
        yield (
            f"{_are(stalled, 'more run' if more else 'run')} unstable: some steps stalled, so that "
            "the mean step time is longer than a typical step."
        )


def _on_sources(runs):
    sources = {}
    for row in runs:
        if row.get("timing_source") not in (None, cells.MEASURED):
            key = row["timing_source"], cells.is_own(row)
            sources.setdefault(key, []).append(row.get("source"))
    for (timing, is_own), origins in sorted(sources.items()):
        where = _commonest(origins, 2 if timing != cells.PUBLISHED else 8)
        where = f" ({where})" if where else ""
        if is_own:
            yield f"{_are(len(origins), 'run')} timed by the program itself, in a log of {timing}."
        elif timing == cells.PUBLISHED:
            yield (
                f"{_are(len(origins), 'row')} not measured here but published{where}: references, "
                "on which no finding rests."
            )
        else:
            yield f"{_are(len(origins), 'run')} imported from logs of {timing}{where}."
    notes = [note for row in runs for note in (row.get("notes") or "").split("; ") if note]
    commonest = Counter(phrases.merged([""] * len(notes), sorted(notes))).most_common()
    for note, count in commonest[:MAX_NOTES]:
        yield f"Note on {phrases.counted(count, 'run')}: {note}"
    if len(commonest) > MAX_NOTES:
        yield f"{len(commonest) - MAX_NOTES} further kinds of notes are in the table of runs."


def _on_bases(speedups, comparisons):
    for rows, column, noun, sides, verb, end in (
        (speedups, "base_mismatch", "speedup", "point and base", "differ in",
         ": that is no measure of scaling alone"),
        (comparisons, "base_flags", "comparison", "the two sides", "also differ in", ""),
    ):  # fmt: skip
        counts = Counter(row[column] for row in rows if row.get(column))
        for names, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            differences = base_flags.clause(names, sides, verb)
            yield f"In {phrases.counted(count, noun)} {differences}{end}."


def _compared(comparisons, field, base=str) -> Iterable[str]:
    """The values of a field that comparisons have on either side."""
    rows = [row for row in comparisons if row["field"] == field]
    return sorted({name for row in rows for name in (base(row["base"]), row[field]) if name})


def _on_frameworks(comparisons, cuda):
    compared = _compared(comparisons, "framework", lambda base: base.partition(" ")[0])
    by_design = {name: design for name in compared if (design := engine.by_design(name))}
    if len(by_design) > 1:
        clauses = "; ".join(f"{name} {design}" for name, design in by_design.items())
        yield f"Frameworks differ by design (docs/frameworks.md): {clauses}."
    loaded = {name: sorted(cuda[name]) for name in compared if name in cuda}
    if len({version for versions in loaded.values() for version in versions}) > 1:
        clauses = ", ".join(f"{name} {' and '.join(found)}" for name, found in loaded.items())
        yield f"Frameworks that are compared have loaded different CUDA runtimes: {clauses}."


def _on_environments(comparisons, versions):
    named = {
        name: {package: " and ".join(sorted(found)) for package, found in versions[name].items()}
        for name in _compared(comparisons, "environment")
        if name in versions
    }
    packages = dict.fromkeys(package for found in named.values() for package in found)
    differing = [p for p in packages if len({found.get(p, "") for found in named.values()}) > 1]
    if differing:
        clauses = "; ".join(
            f"{name} has {', '.join(f'{p} {found[p]}' for p in differing if found.get(p))}"
            for name, found in named.items()
        )
        yield f"Environments that are compared differ in versions: {clauses}."


def _on_confounding(own_runs):
    for names, things, digits in CONFOUNDING:
        known = [row for row in own_runs if all(row.get(name) for name in names)]
        values = sorted({" ".join(row[name] for name in names) for row in known})
        if len(values) > 1:
            shown = ", ".join(value[:digits] for value in values[:4])
            more = f" and {len(values) - 4} more" if len(values) > 4 else ""
            yield f"Runs are of {len(values)} {things}: {shown}{more}."
    software = {}
    for row in own_runs:
        key = tuple(row.get(name) for name in ("environment", "runtime", "image_digest"))
        software.setdefault(key, set()).add(row.get("software_sha256"))
    for (environment, runtime, _), fingerprints in software.items():
        if len(fingerprints - {None}) > 1:
            yield (
                f"Runs of environment {environment} ({runtime}) are of "
                f"{len(fingerprints - {None})} fingerprints of software: it changed between them."
            )
    if dirty := [r for r in own_runs if r.get("git_dirty") or ".changed" in str(r.get("release"))]:
        yield (
            f"{_are(len(dirty), 'run')} of files that differ from their commit or release; the "
            "digest of the code stands in each record."
        )


def _on_checks(runs, coverage):
    differs = [why for row in runs if (why := run_rows.disagreement(row.get("epochs_check")))]
    if differs:
        yield (
            f"In {phrases.counted(len(differs), 'run')} the clock and the steps give different "
            f"throughputs; {differs[0]}."
        )
    if opposed := [why for row in runs if (why := row.get(contradictions.REASON))]:
        yield (
            f"Numbers of {phrases.counted(len(opposed), 'run')} contradict one another, so that "
            f"nothing is compared with them; {opposed[0]}."
        )
    unlike = Counter(row["repeats_differ"] for row in runs if row.get("repeats_differ"))
    for difference, count in unlike.most_common(MAX_NOTES):
        yield f"{_are(count, 'run')} unlike the first repeat of their combination: {difference}."
    if stale := sum(row["status"] == "stale" for row in coverage):
        yield f"{_are(stale, 'run')} stale: code, data or environment has changed since."


def _are(count, noun):
    return f"{phrases.counted(count, noun)} {'is' if count == 1 else 'are'}"


# Terms of the report's section on the method, and what they mean.
_METHOD = [
    ("Run", "One training of one combination. The run is the unit of all statistics, never the "
     "step."),
    ("Device", "A GPU; on CPUs the cores to which the run is pinned."),
    ("Images per second", "Items of all measured steps and devices over the time that they took "
     "the slowest process; warm-up steps and compiling are left out, reading data is in it."),
    ("Step time", "From the end of the step before to its own end, on the process that took "
     "longest for all measured steps. Median and 95th percentile over these."),
    ("Goodput", "Share of the wall time of runs that was spent in training steps, warm-up "
     "included. Queue, start of the container, imports, compiling, evaluations, checkpoints and "
     "restarts are the rest."),
    ("Means and intervals", "Geometric means over the runs that completed (ok or unstable); 95 % "
     "intervals are Student's t for a mean and Welch's for a ratio, on the logarithm of the "
     "throughput."),
    ("Speedup and efficiency", "Throughput over that of the named base; efficiency is the speedup "
     "times the base's devices over these. Weak scaling fixes the batch per device, strong "
     "scaling the global batch. What differs from the base is named beside it."),
    ("Equivalent", "Two one-sided tests (TOST) show that the difference is within the margin of "
     "{margin}."),
    ("Slower, faster", "Not equivalent, and a two-sided test shows a difference. All verdicts "
     "hold at the 5 % level after Holm's correction."),
    ("Undecided", "Neither is shown. It is no proof of equality."),
    ("Measured apart", "No session (start of the workflow) has runs of both sides. What both "
     "sessions measured, as sentinels, tells how the machine drifted in between: the ratio is "
     "corrected for it, and its interval includes the drift's uncertainty. Unless the drift is "
     "shown to be equivalent to none, the two sides are flagged, and no statement about them is "
     "labelled shown."),
    ("Unstable", "The run completed, but its throughput over all measured steps differs by more "
     "than 5 % from that of the median step: steps stalled, or fast and slow ones alternate. Or "
     "other processes on the machine used more of the run's cores, GPUs, memory or disks than the "
     "config allows."),
    ("Shown, indicated, open", "How well a statement is supported. Shown: a test is significant, "
     "or at least three undisturbed runs of each side give an interval that excludes zero effect. "
     "Indicated: an interval of fewer runs or of disturbed ones, or of sides that differ in more "
     "than one thing or were measured apart. Open: the data do not answer it."),
]  # fmt: skip


def method(margin: float) -> list[tuple[str, str]]:
    """(term, its meaning) of the section on the method, with the margin of equivalence."""
    return [(term, text.format(margin=f"{100 * margin:.3g} %")) for term, text in _METHOD]
