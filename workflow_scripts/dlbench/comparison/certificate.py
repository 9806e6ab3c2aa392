"""A certificate: one page on which nodes keep which bounds, by which archive.

The archive is named by its SHA-256: whoever has it can verify the archive and make the page again.
The page has no date of its own, so the same archive and bounds give the same bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlbench.common import host_lists, phrases
from dlbench.comparison.accept_nodes import Accepted
from dlbench.comparison.acceptance import Kept
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.study.wording import number
from dlbench.tables import parquet_files
from dlbench.tables.baseline_columns import BASELINES
from dlbench.tables.table_columns import RUNS

MOST = 12  # sentences on failures, so that it is one page
FACTS = (
    ("study", "study"),
    ("site", "site"),
    ("device_model", "device"),
    ("devices_per_node", "devices per node"),
    ("framework", "framework"),
    ("framework_version", "its version"),
    ("runtime", "runtime"),
)


@dataclass(frozen=True)
class Evidence:
    """The files that a certificate rests on.

    Attributes:
        archive, bounds: their names; archive_sha256, bounds_sha256: their digests, hexadecimal.
        files: how many files of the archive were compared with their digests.
        nodes: the nodes that must have been measured, as they were given; "" if not.
    """

    archive: str
    archive_sha256: str
    files: int
    bounds: str
    bounds_sha256: str
    nodes: str = ""


def facts(folder: Path) -> list[tuple[str, str]]:
    """(what, its values) of the runs and baselines in a results folder, as their tables say."""
    tables = {
        "run": (folder / "tables/runs.parquet", RUNS),
        "baseline": (folder / "tables/baselines.parquet", BASELINES),
    }
    rows, counts = [], []
    for noun, (path, schema) in tables.items():
        if path.is_file():
            of_table = parquet_files.read(path, schema, earlier=True).to_pylist()
            rows += of_table
            counts.append(phrases.counted(len(of_table), noun))
    named = []
    for column, name in FACTS:
        values = {str(row[column]) for row in rows if row.get(column) is not None}
        if values:
            named.append((name, ", ".join(sorted(values))))
    days = sorted(f"{row['started_at']:%Y-%m-%d}" for row in rows if row.get("started_at"))
    if days:
        named.append(("measured", " to ".join(dict.fromkeys((days[0], days[-1])))))
    return [*named, ("results", ", ".join(counts))]


def page(
    accepted: Accepted,
    kept: Sequence[Kept],
    known: Iterable[tuple[str, str]],
    evidence: Evidence,
) -> Page:
    """The Page of a certificate.

    Args:
        kept: who keeps each bound.
        known: from `facts`.
    """
    good, bad, unknown = (
        host_lists.compact_hosts(group) or "none"
        for group in (accepted.good, accepted.bad, accepted.unknown)
    )
    return Page(
        title=f"Acceptance of nodes: {'passed' if accepted.all_passed else 'NOT passed'}",
        lead=f"{phrases.counted(len(accepted.good), 'node')} passed, {len(accepted.bad)} failed, "
        f"{len(accepted.unknown)} not known.",
        sections=(
            Section(
                "Nodes",
                (),
                Table(("", ""), [["passed", good], ["failed", bad], ["not known", unknown]]),
            ),
            Section("What was measured", (), Table(("", ""), [[*each] for each in known])),
            Section("Against what", (), _bounds(kept)),
            *_failures(accepted),
            _evidence(evidence),
        ),
        kind="good" if accepted.all_passed else "bad",
    )


def _bounds(kept):
    rows: list[list[str | Cell]] = [
        [
            one.subject,
            one.bound.metric,
            _limits(one.bound),
            _means(one),
            Cell(_outcome(one), _kind(one)),
        ]
        for one in kept
    ]
    headings = ("what", "metric", "expected", "lowest (of), median", "nodes or groups")
    return Table(headings, rows, right=(2, 3))


def _limits(bound):
    ends = (("at least", bound.lower), ("at most", bound.upper))
    stated = [
        f"{name} {number(bound.value * (1 + share))}" for name, share in ends if share is not None
    ]
    return f"{' and '.join(stated) or 'any'} {bound.unit}"


def _means(one):
    if one.lowest is None:
        return "-"
    return f"{number(one.lowest)} ({one.slowest}), {number(one.median)}"


def _outcome(one):
    counts = ((one.kept, "pass"), (one.failed, "FAIL"), (one.missing, "not measured"))
    return ", ".join(f"{count} {name}" for count, name in counts if count) or "not measured"


def _kind(one):
    if one.failed:
        return "bad"
    return "good" if one.kept and not one.missing else "open"


def _failures(accepted):
    """The section on failures; () if there are none."""
    sentences = [
        f"{one.name}: {sentence}"
        for one in accepted.judged
        for sentence in (*one.failures, *one.missing)
    ]
    more = len(sentences) - MOST
    if more > 0:
        sentences = [*sentences[:MOST], f"and {more} more, which dlbench accept-nodes prints"]
    return [Section("What fails or is missing", tuple(sentences))] if sentences else []


def _evidence(evidence):
    nodes = f" --nodes '{evidence.nodes}'" if evidence.nodes else ""
    again = f"dlbench accept-nodes {evidence.archive} --bounds {evidence.bounds}{nodes}"
    return Section(
        "Evidence",
        (
            f"The archive's {phrases.counted(evidence.files, 'file')} agree with their digests. "
            "It has the raw log of every run; dlbench verify --deep reads them again.",
        ),
        Table(
            ("file", "SHA-256"),
            [
                [evidence.archive, evidence.archive_sha256],
                [evidence.bounds, evidence.bounds_sha256],
                ["this page again", f"{again} --certificate FILE"],
            ],
        ),
    )
