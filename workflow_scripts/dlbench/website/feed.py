"""An Atom feed (RFC 4287) of new campaigns and of changes of level.

Ids and dates come from the data alone: an entry that was read once does not come again, and equal
histories give equal feeds.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from xml.etree import ElementTree

from dlbench.common import phrases
from dlbench.common.files import json_digest
from dlbench.pages import xml_text
from dlbench.website.overview_pages import TITLE
from dlbench.website.site_data import Site

NAME, ATOM = "feed.xml", "http://www.w3.org/2005/Atom"
MAX_ENTRIES = 100
NEVER = datetime(1970, 1, 1)  # the date of a feed without entries
_IDS = uuid.UUID("6f1c3a52-8f0b-5c5e-9a54-3f0d6c2b7e11")  # of this feed's entries among all UUIDs


@dataclass(frozen=True)
class _Entry:
    id: str
    updated: datetime
    title: str
    href: str
    text: str


def feed(site: Site, address: str = "") -> str:
    """The feed of a website, the newest entries first.

    Args:
        address: where the website will be; "": links are relative to the feed.
    """
    entries = sorted((*_campaigns(site), *_changes(site)), key=lambda e: (e.updated, e.id))
    entries = entries[::-1][:MAX_ENTRIES]
    root = ElementTree.Element("feed", xmlns=ATOM)
    base = address.rstrip("/") + "/" if address else ""
    updated = entries[0].updated if entries else NEVER
    _add(root, "id", _id("feed", address))
    _add(root, "title", TITLE)
    _add(root, "updated", _utc(updated))
    _add(ElementTree.SubElement(root, "author"), "name", "dlbench")
    if base:
        ElementTree.SubElement(root, "link", rel="self", href=base + NAME)
    ElementTree.SubElement(root, "link", rel="alternate", href=f"{base}index.html")
    for entry in entries:
        element = ElementTree.SubElement(root, "entry")
        _add(element, "id", entry.id)
        _add(element, "title", entry.title)
        _add(element, "updated", _utc(entry.updated))
        ElementTree.SubElement(element, "link", rel="alternate", href=base + entry.href)
        _add(element, "content", entry.text, type="text")
    return xml_text.document(root)


def _campaigns(site: Site) -> Iterator[_Entry]:
    machines = {session: machine for machine in site.machines for session in machine.sessions}
    for one in site.sessions:
        origin = f"archive {one.archive_sha256}" if one.archive_sha256 else one.source
        machine = machines[one]
        yield _Entry(
            id=_id("campaign", one.site, one.name),
            updated=one.started_at,
            title=f"New campaign of {one.study} on {machine.label}",
            href=one.address,
            text=f"{phrases.counted(one.conditions, 'number')} of session {one.name}, "
            f"{machine.hardware}; {origin}",
        )


def _changes(site: Site) -> Iterator[_Entry]:
    for row in site.findings:
        machine = site.machine(row)
        size = f"{100 * (row['ratio'] - 1):+.1f} %"
        kind = (row["kind"], row["direction"], *_members(machine, row))
        yield _Entry(
            id=_id("change", machine.site, machine.id, row["session"], *kind),
            updated=row["changed_before"],
            title=f"{row['direction'].capitalize()} of {size} on {machine.label}",
            href=machine.address,
            text=row["text"],
        )


def _members(machine, row):
    """The first condition of a change of single ones: several of them may begin in one session."""
    if row["kind"] == "shared":
        return ()
    names = [
        (series.condition.id, series.metric)
        for series in machine.series
        if any(finding is row for finding, _ in series.findings)
    ]
    return min(names, default=())


def _id(*key):
    return uuid.uuid5(_IDS, json_digest(list(key))).urn


def _add(parent, name, text, **attributes):
    ElementTree.SubElement(parent, name, attributes).text = text


def _utc(date):
    return f"{date:%Y-%m-%dT%H:%M:%S}Z"
