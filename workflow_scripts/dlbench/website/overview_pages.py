"""The website's first page, and the page of a study."""

from markupsafe import Markup

from dlbench.common import phrases
from dlbench.history.history_rows import day
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.website import page_cells
from dlbench.website.reports import Report
from dlbench.website.site_data import PROVENANCE, Machine, Session, Site, study_page

MAX_CHANGES = 20  # of the latest ones on the first page
TITLE = "Benchmark results"


def index(site: Site) -> Page:
    """The page with all machines, studies and conditions, and the latest changes."""
    return Page(
        title=TITLE,
        lead=_lead(site),
        sections=(
            Section("Latest changes", *_changes(site)),
            Section("Machines", (), _machines(site)),
            Section("Studies", (), _studies(site)),
            Section("Conditions", (), _conditions(site)),
            *_left_out(site),
        ),
    )


def search_index(site: Site) -> list[tuple[str, str, str]]:
    """(kind, text that is searched, address) of each page and session."""
    return [
        *(("study", name, study_page(name)) for name in site.studies),
        *(("machine", f"{one.label}: {one.hardware}", one.address) for one in site.machines),
        *(("condition", one.label, one.address) for one in site.conditions),
        *(
            ("session", f"{one.name} {one.source} {one.archive_sha256}", one.address)
            for one in reversed(site.sessions)
        ),
    ]


def study(
    name: str, sessions: list[Session], site: Site, archives: str | None, report: Report | None
) -> Page:
    """The page of a study: its sessions, with the origin of their numbers, and its conditions.

    Args:
        archives: address of the folder that has the archives; None: it is not known.
        report: of a session of it; None: none is at hand.
    """
    mine = set(sessions)
    series = [
        (one, [point for point in one.measured if point.session in mine])
        for condition in site.conditions
        for one in condition.series
    ]
    rows: list[list[str | Cell]] = [
        [
            page_cells.condition(one),
            page_cells.machine(one.machine),
            str(len(points)),
            page_cells.value(points[-1].mean, one.unit),
            page_cells.session(points[-1].session),
        ]
        for one, points in series
        if points
    ]
    machines = _machines_of(site)
    headings = ("condition", "machine", "sessions", "newest value (95 %)", "from")
    count = phrases.counted(len(sessions), "session")
    return Page(
        title=f"Study: {name}",
        lead=f"{count}, {day(sessions[0].started_at)} to {day(sessions[-1].started_at)}, on "
        f"{page_cells.counted((machines[one] for one in sessions), 'machine')}.",
        sections=(
            *_report(report),
            Section("Conditions", (), Table(headings, rows, right=(2, 3))),
            Section("Sessions", (_ARCHIVES,), _sessions(sessions, machines, archives)),
        ),
    )


_ARCHIVES = (
    "The archive has the records and logs of all runs, and the report of the study; dlbench verify "
    "checks it against its digest."
)


def _report(report):
    if report:
        session = report.session
        text = Markup('<p><a href="{}">Report</a> of session {}, {}</p>')
        link = text.format(report.address, session.name, day(session.started_at))
        yield Section("Report", (), drawings=(link,))


def _lead(site):
    if not site.sessions:
        return "The history has no session yet."
    parts = (
        phrases.counted(len(site.sessions), "session"),
        phrases.counted(len(site.machines), "machine"),
        phrases.counted(len(site.conditions), "condition"),
        phrases.counted(len(site.findings), "change"),
    )
    first, last = page_cells.dates(site.sessions)
    return f"{', '.join(parts)}: {first} to {last}."


def _changes(site):
    if not site.findings:
        return ("No change of level was found.",), None
    shown = site.findings[:MAX_CHANGES]
    rows = [
        [
            page_cells.machine(site.machine(row)),
            day(row["changed_before"]),
            page_cells.finding(row),
            row["text"],
        ]
        for row in shown
    ]
    left = len(site.findings) - len(shown)
    note = (f"{phrases.counted(left, 'earlier one')} on the pages of machines.",) if left else ()
    return note, Table(("machine", "since", "change", "finding"), rows, right=(1,))


def _machines(site):
    rows: list[list[str | Cell]] = [
        [
            page_cells.machine(one),
            str(len(one.sessions)),
            *page_cells.dates(one.sessions),
            page_cells.studies(one.sessions),
            str(len(one.findings)),
        ]
        for one in site.machines
    ]
    headings = ("machine", "sessions", "first", "last", "studies", "changes")
    return Table(headings, rows, right=(1, 2, 3, 5))


def _studies(site):
    machines = _machines_of(site)
    rows: list[list[str | Cell]] = [
        [
            page_cells.study(name),
            str(len(sessions)),
            *page_cells.dates(sessions),
            ", ".join(sorted({machines[one].label for one in sessions})),
        ]
        for name, sessions in site.studies.items()
    ]
    return Table(("study", "sessions", "first", "last", "machines"), rows, right=(1, 2, 3))


def _conditions(site):
    rows: list[list[str | Cell]] = [
        [
            Cell(one.label, href=one.address, note=_meaning(one)),
            str(len({series.machine for series in one.series})),
            str(len({p.session for series in one.series for p in series.points})),
        ]
        for one in site.conditions
    ]
    return Table(("condition", "machines", "sessions"), rows, right=(1, 2))


def _meaning(condition):
    return ", ".join(f"{name} {str(text)[:12]}" for name, text in condition.meaning.items())


def _left_out(site):
    if site.left_out:
        rows = [
            [row["session"], row["site"], Cell(row["standing"], "open"), row["reason"] or ""]
            for row in site.left_out
        ]
        heading = "Sessions that do not count"
        yield Section(heading, (), Table(("session", "site", "standing", "reason"), rows))


def _machines_of(site) -> dict[Session, Machine]:
    return {session: machine for machine in site.machines for session in machine.sessions}


def _sessions(sessions, machines, archives):
    rows = [
        [
            Cell(one.name, anchor=one.anchor, note=day(one.started_at)),
            page_cells.machine(machines[one]),
            str(one.conditions),
            page_cells.archive(one, archives),
            "; ".join(
                f"{PROVENANCE[name]} {text}" for name, text in one.provenance.items() if text
            ),
        ]
        for one in reversed(sessions)
    ]
    headings = ("session", "machine", "numbers", "from", "with")
    return Table(headings, rows, right=(2,))
