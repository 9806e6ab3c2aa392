"""The reports of campaigns on the website: of each study that of its newest session at hand.

- A report counts if its source is the one that the history has: an archive by its SHA-256, a
  results folder by the logs of the session.
- It is a page of whoever wrote the source, so it is never a file of the website, which could run
  scripts under its address: it is the text of a frame in one of ours. The frame is a sandbox
  without an origin, forms, windows or a way out; our policy, which it inherits, lets it load
  nothing, and go nowhere. Its own script, which draws its tables, runs in there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from dlbench import Error
from dlbench.archive import verify_archive
from dlbench.common.files import read_json, sha256
from dlbench.history import dataset, history_rows, sources
from dlbench.history.history_rows import day
from dlbench.pages.page import Page, Section
from dlbench.report import site_data
from dlbench.report.site_data import Session, Site

MAX_BYTES, MAX_TOTAL_BYTES = 4 << 20, 20 << 20  # of a report; of all
POLICY = Markup(
    "default-src 'none'; img-src data:; form-action 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'"
)
# Links within a report lead to its own places, not to those of the page around it.
_FRAME = Markup(
    '<iframe class="report" title="Report" sandbox="allow-scripts" '
    'srcdoc="&lt;base href=about:srcdoc&gt;{}"></iframe>'
)


@dataclass(frozen=True)
class Report:
    """The report of a study's session, as HTML of whoever wrote it."""

    session: Session
    html: str

    @property
    def address(self) -> str:
        """The name of its page."""
        return site_data.file_name("report", self.session.study, self.session.study)


def find(
    site: Site, history: Path, places: Iterable[Path], note: Callable[[str], None]
) -> dict[str, Report]:
    """{name of a study: the report of its newest session whose source is at hand}.

    Args:
        places: archives and results folders.
        note: called with a text for each report that is not shown.
    """
    by_name: dict[str, list[Path]] = {}
    for place in places:
        by_name.setdefault(place.name, []).append(place)
    found, total = {}, 0
    for study, sessions in site.studies.items():
        report = _newest(sessions, history, by_name, note)
        if report is None:
            continue
        total += len(report.html.encode())
        if total > MAX_TOTAL_BYTES:
            note(f"the report of {study} is not shown: all have more than {MAX_TOTAL_BYTES} bytes")
            break
        found[study] = report
    return found


def page(report: Report) -> Page:
    """The page around a report."""
    session = report.session
    origin = f"archive {session.archive_sha256}" if session.archive_sha256 else session.source
    lead = f"Of session {session.name}, {day(session.started_at)}, from {origin}."
    said = ("Whoever measured it wrote this report; it is shown unchanged.",)
    frame = _FRAME.format(report.html)
    return Page(
        f"Report: {session.study}", lead, (Section("As it was written", said, drawings=(frame,)),)
    )


def _newest(sessions, history, by_name, note) -> Report | None:
    for session in reversed(sessions):
        for place in by_name.get(session.source, ()):
            try:
                content = _content(place, session, history)
                if content:
                    return Report(session, content.decode("utf-8"))
            except (Error, OSError, UnicodeDecodeError) as error:
                note(f"{place}: its report is not shown: {error}")
    return None


def _content(place, session, history) -> bytes | None:
    """The report of a source, if the session is of it as it is now."""
    if session.archive_sha256:
        if not place.is_file() or sha256(place) != session.archive_sha256:
            return None
        with verify_archive.open_bag(place) as bag:
            name = "data/results/report.html"
            return bag.read(name, MAX_BYTES) if name in bag.entries else None
    folder = sources.results_folder(place) if place.is_dir() else None
    file = folder / "report.html" if folder else None
    if folder is None or file is None or not file.is_file() or not _has(folder, session, history):
        return None
    if file.stat().st_size > MAX_BYTES:
        raise Error(f"it has more than {MAX_BYTES} bytes")
    return file.read_bytes()


def _has(folder, session, history):
    """Whether the logs of a session are those of a results folder."""
    records = (read_json(path) or {} for path in folder.glob("runs/*/run.json"))
    logs = {str(record.get("log_sha256"))[: history_rows.LOG_DIGITS] for record in records}
    return dataset.logs(history, session.file) <= logs
