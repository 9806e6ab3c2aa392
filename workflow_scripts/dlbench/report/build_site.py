"""Write the website of a history into a folder: pages that need no server and load nothing.

- Equal histories give equal bytes: there is no date of making in them.
- A folder that was written before is brought up to date: `files.json` names what is ours in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import atomic_write, read_json, write_json
from dlbench.pages import formats, templates
from dlbench.pages.page import Page
from dlbench.report import site_data, site_pages
from dlbench.report.site_data import Report, Site

TEMPLATE = "report/site/site.html.jinja"
STYLES = ("pages/page.css", "pages/page_links.css", "pages/page_tables.css", "report/site/site.css")
FILES = "files.json"
OURS = re.compile(r"[a-z0-9-]+\.(html|xml)")
NAVIGATION = {"Overview": "index.html", "Compare": site_pages.COMPARE}


def build(
    history: Path,
    names_of_machines: Mapping[str, Sequence[str]],
    output: Path,
    archives: str | None = None,
    places_of_reports: Iterable[Path] = (),
) -> Site:
    """Write the website of a history.

    Args:
        names_of_machines: `machines` of a config.
        archives: address of the folder that has the archives, for links.
        places_of_reports: archives and results folders, whose reports it shows.

    Raises Error: the folder holds something else than an earlier website, or there is no history.
    """
    earlier = _earlier(output)
    if not history.is_dir():
        raise Error(
            f"{history}: expected the folder of a history, found none: `uv run snakemake history` "
            "makes one from the campaigns that a config names"
        )
    site = site_data.read(history, names_of_machines)
    shown = site_data.find_reports(site, history, places_of_reports, site.notes.append)
    written = []
    for name, text in _files(site, shown, archives):
        with atomic_write(output / name) as part:
            part.write_text(text, encoding="utf-8")
        written.append(name)
    for name in set(earlier) - set(written):
        (output / name).unlink(missing_ok=True)
    write_json(output / FILES, {"files": sorted(written)})
    return site


def _earlier(output: Path) -> list[str]:
    """The files of an earlier website in a folder."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return []
    known = (read_json(output / FILES) or {}).get("files") if output.is_dir() else None
    if not isinstance(known, list):
        raise Error(
            f"{output}: expected no such folder, an empty one or an earlier website, found "
            f"something else (without {FILES}): name another folder"
        )
    return [name for name in map(str, known) if OURS.fullmatch(name)]


def _files(
    site: Site, shown: Mapping[str, Report], archives: str | None
) -> Iterator[tuple[str, str]]:
    """(name, text) of each file."""
    index = site_pages.index(site)
    yield _html("index.html", index, site_pages.search_index(site), "search.js")
    yield _html(
        site_pages.COMPARE, site_pages.comparison(), site_pages.comparison_data(site), "compare.js"
    )
    for name, sessions in site.studies.items():
        page = site_pages.study(name, sessions, site, archives, shown.get(name))
        yield _html(site_data.study_page(name), page)
    for report in shown.values():
        yield _html(report.address, site_pages.report_page(report), policy=site_pages.REPORT_POLICY)
    for machine in site.machines:
        yield _html(machine.address, site_pages.machine(machine))
    for condition in site.conditions:
        yield _html(condition.address, site_pages.condition(condition))


def _html(
    name: str, page: Page, data: Any = None, script: str = "", policy: str = ""
) -> tuple[str, str]:
    """(name, text) of a page; `data` is for its script, `policy` what it may load if not these."""
    style = templates.source(*STYLES)
    scripts = ("report/site/elements.js", f"report/site/{script}") if script else ()
    source = templates.source(*scripts)
    return name, templates.render(
        TEMPLATE,
        **formats.template_values(page),
        style=style,
        script=source,
        policy=policy or templates.policy(style, source),
        data=data,
        address=name,
        navigation=NAVIGATION,
    )
