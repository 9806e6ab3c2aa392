"""Sentences of the report: what was measured, on what, what numbers mean, what to beware of."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dlbench.analysis import base_flags
from dlbench.common import phrases
from dlbench.log import event_fields
from dlbench.records import account, sessions
from dlbench.report import report_tables
from dlbench.results import derived
from dlbench.study import contradictions, wording
from dlbench.tables import timing_sources
from dlbench.trainer import engine

Row = dict[str, Any]
MOST_NOTES, MOST_PARTS = 8, 3  # parts: of the time of runs
CUDA = "CUDA runtime"  # its library cudart, as a fact of a run
FEW = 3  # runs of a combination, below which there is no verdict
# Packages of frameworks, each framework's first one before what some share.
_PACKAGES = sorted({pair for one in engine.names() for pair in enumerate(engine.packages(one))})
# Facts of machine and software, in their order; further ones follow.
FACTS = ("site", "kind of device", "device", "processor", "memory", "GPU driver", CUDA, "host",
         "operating system", "kernel", "platform", "interconnect", "network", "storage",
         "framework", "python version", *(f"{name} version" for _, name in _PACKAGES),
         "numpy version", "environment", "runtime", "image", "modules", "cores and GPUs", "data",
         "timing source", "source", "dlbench at commit")  # fmt: skip
METHOD = [
    ("Run", "One training of one combination. The run is the unit of all statistics, never the "
     "step."),
    ("Device", "A GPU; on CPUs the cores to which the run is pinned."),
    ("Images per second", "Items of all measured steps and devices over the time that they took "
     "the slowest process; warm-up steps and compiling are left out, reading data is in it."),
    ("Step time", "From the end of the step before to its own end, on the process that took "
     "longest for all measured steps. Median and 95th percentile over these."),
    ("Goodput", "Share of the wall time of runs that was spent in training steps. Queue, start of "
     "the container, imports, compiling, evaluations, checkpoints and restarts are the rest."),
    ("Means and intervals", "Geometric means over runs; 95 % intervals are Student's t for a mean "
     "and Welch's for a ratio, on the logarithm of the throughput."),
    ("Speedup and efficiency", "Throughput over that of the named base; efficiency is the speedup "
     "times the base's devices over these. Weak scaling fixes the batch per device, strong "
     "scaling the global batch. In what the base differs stands beside it."),
    ("Equivalent", "Two one-sided tests show that the difference is within the margin."),
    ("Slower, faster", "Not so, and a two-sided test shows that there is a difference. All "
     "verdicts hold on the 5 % level after Holm's correction."),
    ("Undecided", "Neither is shown. It is no proof of equality."),
    ("Measured apart", "No session (start of the workflow) has runs of both sides. What both "
     "sessions measured, as sentinels, tells how the machine drifted in between: the ratio is "
     "corrected for it, and its interval includes the drift's uncertainty. Unless the drift is "
     "shown to be equivalent to none, the two sides are flagged, and no finding about them is "
     "called shown."),
    ("Unstable", "The run ended well, but its throughput over all measured steps is further "
     "from that of the median step than 5 % of the latter: steps stalled. Or others on the "
     "machine used more of the run's cores, GPUs, memory or disks than the config allows."),
    ("Shown, indicated, open", "Of a finding: a test or at least three runs of each side carry "
     "it; it has an interval of fewer runs, or the sides differ in more than one thing; "
     "neither."),
]  # fmt: skip


def lead(runs: list[Row], coverage: list[Row]) -> str:
    """The sentence that sums up the study: how many runs ended well, where, and what did not."""
    if not coverage:
        return "This study has no runs."
    counts = Counter(row["status"] for row in coverage)
    well = sum(counts[status] for status in event_fields.ENDED_WELL)
    of_config = len(coverage) - counts["excluded"] - counts["imported"]
    words = f"{_amount(well, of_config)} ended well" if of_config else "Everything was excluded"
    if counts["unstable"]:
        words += (
            f", {counts['unstable']} of them unstable (their steps stalled, or others disturbed "
            "them)"
        )
    others = [
        f"{counts[s]} {w}"
        for s, w in (
            ("failed", "failed"),
            ("oom", "ran out of memory"),
            ("timeout", "exceeded the time limit"),
            ("skipped", "were skipped"),
            ("stale", "are stale"),
        )
        if counts[s]
    ]
    own = [row for row in runs if row.get("timing_source") in (None, timing_sources.MEASURED)]
    machines = _listed(row.get("device_model") for row in own)
    sites = _listed(row.get("site") for row in own)
    place = f" on {sites}" if sites else ""
    return (
        words
        + (f"; {', '.join(others)}" if others else "")
        + (f". Measured{place}{f' ({machines})' if machines else ''}." if well else ".")
        + _beside(runs)
    )


def _beside(runs):
    """How many runs and numbers of others there are."""
    published = sum(row.get("timing_source") == timing_sources.PUBLISHED for row in runs)
    own = sum(row.get("timing_source") in (None, timing_sources.MEASURED) for row in runs)
    imported = len(runs) - published - own
    parts = [phrases.counted(imported, "imported run")] * bool(imported)
    parts += [phrases.counted(published, "published point")] * bool(published)
    return f" Beside them: {' and '.join(parts)}." if parts else ""


def _amount(some, all_):
    if some == all_:
        return f"All {all_} runs" if all_ > 1 else "The one run"
    return f"{some} of {all_} runs"


def facts(
    runs: list[Row],
    conditions: list[tuple[Row, list[Row]]],
    sentinels: Sequence[Row] = (),
    drift: Sequence[Row] = (),
    spent_s: Mapping[str, float] | None = None,
) -> list[tuple[str, str]]:
    """(term, words) of what was measured and on what, as far as it is known.

    Args:
        runs, sentinels, drift: rows of these tables.
        conditions: of the runs, from report_tables.conditions.
        spent_s: seconds of each part of all runs together (dlbench/records/account.py).
    """
    own = [row for row in runs if row.get("timing_source") == timing_sources.MEASURED]
    known = {sessions.session_of(row) for row in (*own, *sentinels)}
    over = sessions.words(len(known), len(sentinels), [row["verdict"] for row in drift])
    devices = sorted({row["devices"] for row in runs if row.get("devices")})
    nodes = sorted({row["nodes"] for row in runs if row.get("nodes")})
    kinds = {row.get("device_kind") for row in runs}
    device = wording.device(kinds.pop() if len(kinds) == 1 else None)
    versions = (
        f"{row['framework']} {row['framework_version']}"
        for row in runs
        if row.get("framework_version")
    )
    terms = [
        ("Combinations", f"{len(conditions)}, {_repeats(conditions)}"),
        ("Models", _listed(row.get("model") for row in runs)),
        ("Data", _listed(row.get("dataset") for row in runs)),
        ("Site", _listed(row.get("site") for row in runs)),
        ("Device", _listed(row.get("device_model") for row in runs)),
        ("Scale", f"{_counted(devices, device)} on {_counted(nodes, 'node')}"
         if devices else ""),
        ("Software", _listed(versions)),
        ("Runtimes", _listed(row.get("runtime") for row in runs)),
        ("Dates", dates(runs)),
        ("Sessions", over if len(known) > 1 else ""),
        ("Time of runs", time_spent(spent_s or {})),
    ]  # fmt: skip
    return [(term, words) for term, words in terms if words] if runs else []


def time_spent(spent_s: Mapping[str, float]) -> str:
    """What the wall time of runs was for, its largest parts; "" if nothing is known.

    >>> time_spent({"imports": 30.0, "steps": 60.0, "shutdown": 10.0})
    '100 s: 60 % in steps (goodput), 30 % imports, 10 % shutdown'
    """
    whole_s = sum(spent_s.values())
    if not whole_s:
        return ""
    productive = sum(spent_s.get(part, 0.0) for part in account.PRODUCTIVE)
    others = {part: s for part, s in spent_s.items() if part not in account.PRODUCTIVE}
    largest = sorted(others, key=lambda part: -others[part])[:MOST_PARTS]
    shares = {part: round(100 * others[part] / whole_s) for part in largest}
    said = [f"{share} % {part.replace('_', ' ')}" for part, share in shares.items() if share]
    goodput = f"{100 * productive / whole_s:.0f} % in steps (goodput)"
    return f"{phrases.duration(whole_s)}: {', '.join([goodput, *said])}"


def _repeats(conditions):
    counts = sorted({len(group) for _, group in conditions})
    return f"{_counted(counts, 'run')} each"


def _counted(numbers, noun):
    """As in `1 to 2 nodes`, of sorted numbers; `? nodes` where none is known."""
    if not numbers:
        return f"? {noun}s"
    if len(numbers) == 1:
        return phrases.counted(numbers[0], noun)
    return f"{numbers[0]} to {phrases.counted(numbers[-1], noun)}"


def _listed(values, most=4):
    """The distinct values, the commonest first."""
    counts = Counter(value for value in values if value)
    names = sorted(counts, key=lambda value: (-counts[value], value))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def dates(runs: list[Row]) -> str:
    """From the first start to the last end, days in UTC."""
    starts = [row["started_at"] for row in runs if row.get("started_at")]
    ends = [row["ended_at"] for row in runs if row.get("ended_at")]
    if not starts:
        return ""
    first, last = (f"{d:%Y-%m-%d}" for d in (min(starts), max([*ends, *starts])))
    return f"{first} (UTC)" if first == last else f"{first} to {last} (UTC)"


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
        *_of_repeats(runs),
        *_of_sources(runs),
        *_of_bases(speedups, comparisons),
        *_of_frameworks(comparisons, cuda),
        *_of_environments(comparisons, versions or {}),
        *_of_confounding(runs),
        *_of_checks(runs, coverage),
    ]


def _of_repeats(runs):
    sizes = Counter(
        min(len(well), FEW)
        for _, group in report_tables.conditions(runs)
        if (well := [row for row in group if row["status"] in event_fields.ENDED_WELL])
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
        one = len(disturbed) == 1
        yield (
            f"{phrases.counted(len(disturbed), 'run')} {'was' if one else 'were'} disturbed by "
            f"others on the machine ({'' if one else 'one of them: '}"
            f"{disturbed[0]['disturbed']}). No finding that rests on such a run is called "
            "shown."
        )
    unstable = sum(row["status"] == "unstable" and not base_flags.is_disturbed(row) for row in runs)
    if unstable:
        yield (
            f"{_are(unstable, 'run')} unstable: some steps stalled, so that the mean is not "
            "what a usual step does."
        )


def _of_sources(runs):
    sources = {}
    for row in runs:
        if row.get("timing_source") not in (None, timing_sources.MEASURED):
            sources.setdefault(row["timing_source"], []).append(row.get("source"))
    for timing, origins in sorted(sources.items()):
        where = _listed(origins, 2 if timing != timing_sources.PUBLISHED else 8)
        where = f" ({where})" if where else ""
        if timing == timing_sources.PUBLISHED:
            yield (
                f"{_are(len(origins), 'row')} not measured here but published{where}: references, "
                "on which no finding rests."
            )
        else:
            yield f"{_are(len(origins), 'run')} imported from logs of {timing}{where}."
    notes = {}  # those that differ in numbers only are one
    for row in runs:
        for note in (row.get("notes") or "").split("; "):
            if note:
                notes.setdefault(phrases.without_numbers(note), []).append(note)
    commonest = sorted(notes.values(), key=lambda group: (-len(group), group[0]))
    for group in commonest[:MOST_NOTES]:
        yield f"Note on {phrases.counted(len(group), 'run')}: {phrases.merge(group)}"
    if len(commonest) > MOST_NOTES:
        yield f"{len(commonest) - MOST_NOTES} further kinds of notes are in the table of runs."


def _of_bases(speedups, comparisons):
    bases = Counter(row["base_mismatch"] for row in speedups if row.get("base_mismatch"))
    for words, count in sorted(bases.items(), key=lambda item: (-item[1], item[0])):
        differences = base_flags.words(words, "point and base")
        number = phrases.counted(count, "speedup")
        yield f"In {number} {differences}: that is no measure of scaling alone."
    flags = Counter(row["base_flags"] for row in comparisons if row.get("base_flags"))
    for words, count in sorted(flags.items(), key=lambda item: (-item[1], item[0])):
        differences = base_flags.words(words, "the two sides", "also differ in")
        yield f"In {phrases.counted(count, 'comparison')} {differences}."


def _of_frameworks(comparisons, cuda):
    compared = {
        name
        for row in comparisons
        if row["field"] == "framework"
        for name in (row["base"].partition(" ")[0], row["framework"])
        if name
    }
    by_design = {name: words for name in sorted(compared) if (words := engine.by_design(name))}
    if len(by_design) > 1:
        clauses = "; ".join(f"{name} {words}" for name, words in by_design.items())
        yield f"Frameworks differ by design (docs/frameworks.md): {clauses}."
    loaded = {name: sorted(cuda[name]) for name in sorted(compared) if name in cuda}
    if len({version for versions in loaded.values() for version in versions}) > 1:
        clauses = ", ".join(f"{name} {' and '.join(found)}" for name, found in loaded.items())
        yield f"Frameworks that are compared have loaded different CUDA runtimes: {clauses}."


def _of_environments(comparisons, versions):
    compared = {
        name
        for row in comparisons
        if row["field"] == "environment"
        for name in (row["base"], row["environment"])
    }
    known = {name: versions[name] for name in sorted(compared) if name in versions}
    packages = list(dict.fromkeys(package for found in known.values() for package in found))
    told = {
        package: {
            name: " and ".join(sorted(found.get(package, ()))) for name, found in known.items()
        }
        for package in packages
    }
    differing = [package for package in packages if len(set(told[package].values())) > 1]
    if differing:
        clauses = "; ".join(
            f"{name} has {', '.join(f'{p} {told[p][name]}' for p in differing if told[p][name])}"
            for name in known
        )
        yield f"Environments that are compared differ in versions: {clauses}."


def _of_confounding(runs):
    own = [row for row in runs if row.get("timing_source") == timing_sources.MEASURED]
    for names, words in (
        (("device_model",), "device models"),
        (("framework", "framework_version"), "versions"),
        (("host",), "hosts"),
        (("hardware_sha256",), "fingerprints of hardware"),
        (("git_commit",), "commits of dlbench"),
    ):
        known = [row for row in own if all(row.get(name) for name in names)]
        values = sorted({" ".join(row[name] for name in names) for row in known})
        if len(values) > 1:
            digest = names[0] in ("git_commit", "hardware_sha256")
            short = report_tables.SHORT if digest else None
            shown = ", ".join(value[:short] for value in values[:4])
            more = f" and {len(values) - 4} more" if len(values) > 4 else ""
            yield f"Runs are of {len(values)} {words}: {shown}{more}."
    software = {}
    for row in own:
        place = tuple(row.get(name) for name in ("environment", "runtime", "image_digest"))
        software.setdefault(place, set()).add(row.get("software_sha256"))
    for place, fingerprints in software.items():
        if len(fingerprints - {None}) > 1:
            yield (
                f"Runs of environment {place[0]} ({place[1]}) are of {len(fingerprints - {None})} "
                "fingerprints of software: it changed between them."
            )
    dirty = sum(bool(row.get("git_dirty")) for row in own)
    if dirty:
        yield (
            f"{_are(dirty, 'run')} of files that differ from their commit; the digest of the "
            "code stands in each record."
        )


def _of_checks(runs, coverage):
    differs = [row for row in runs if derived.disagreement(row.get("epochs_check"))]
    if differs:
        yield (
            f"In {phrases.counted(len(differs), 'run')} the clock and the steps tell different "
            f"throughputs; {derived.disagreement(differs[0]['epochs_check'])}."
        )
    if opposed := [row for row in runs if row.get(contradictions.REASON)]:
        yield (
            f"Numbers of {phrases.counted(len(opposed), 'run')} contradict one another, so that "
            f"nothing is compared with them; {opposed[0][contradictions.REASON]}."
        )
    unlike = Counter(row["repeats_differ"] for row in runs if row.get("repeats_differ"))
    for words, count in unlike.most_common(MOST_NOTES):
        yield f"{_are(count, 'run')} unlike the first repeat of their combination: {words}."
    stale = sum(row["status"] == "stale" for row in coverage)
    if stale:
        yield f"{_are(stale, 'run')} stale: made by other code, data or software than now."


def _are(count, noun):
    return f"{phrases.counted(count, noun)} {'is' if count == 1 else 'are'}"
