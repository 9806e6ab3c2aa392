"""ro-crate-metadata.json of a history: a Process Run Crate 0.6 on RO-Crate 1.3.

Its files, the campaigns that they are based on, each with its authors and licence, and the making
of the tables. The crate in an archive says how its campaign was measured. Source: the profile
https://w3id.org/ro/wfrun/process/0.6.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dlbench import __version__
from dlbench.archive import crate
from dlbench.publication.citations import Campaign

HISTORY, MAKING, SOFTWARE = "history/", "#tables", "#dlbench"
_LINKS, _LINK = ("orcid", "website"), re.compile(r"https?://[\w./~%-]+")  # ids of entities
ENCODINGS = crate.ENCODINGS | {".md": "text/markdown", ".withdrawn": "text/plain"}


def metadata(
    title: str,
    summary: str,
    date: str,
    authors: Sequence[Mapping[str, Any]],
    licenses: Sequence[str],
    campaigns: Sequence[Campaign],
    files: Iterable[str],
) -> bytes:
    """The content of ro-crate-metadata.json.

    Args:
        date: of the newest session, YYYY-MM-DD.
        authors: of the whole, as in CITATION.cff.
        licenses: of the whole, SPDX identifiers.
        files: names of all other files, relative to the crate.
    """
    files = sorted(files)
    based_on = {
        f"{HISTORY}{name}": number for number, one in enumerate(campaigns, 1) for name in one.files
    }
    people = _People()
    parts = [name for name in files if not name.startswith(HISTORY)]
    tables = [name for name in files if name.startswith("tables/")]
    name, version = crate.PROFILES[crate.PROCESS_RUN]
    graph = [
        {
            "@id": crate.METADATA,
            "@type": "CreativeWork",
            "conformsTo": {"@id": crate.CRATE},
            "about": {"@id": "./"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": title,
            "description": summary,
            "datePublished": date,
            "author": people.references(authors),
            "license": _references(map(_license_id, licenses)),
            "conformsTo": {"@id": crate.PROCESS_RUN},
            "hasPart": _references([*map(quote, parts), HISTORY]),
            "mentions": {"@id": MAKING},
            "isBasedOn": _references(map(_id, range(1, len(campaigns) + 1))),
        },
        {
            "@id": crate.PROCESS_RUN,
            "@type": ["CreativeWork", "Profile"],
            "name": name,
            "version": version,
        },
        {
            "@id": HISTORY,
            "@type": "Dataset",
            "name": "Sessions",
            "description": "A file each, which is never changed; .withdrawn: taken back, and why",
            "hasPart": _references(quote(name) for name in files if name.startswith(HISTORY)),
        },
        *(_file(name, based_on.get(name)) for name in files),
        *(_campaign(number, one, people) for number, one in enumerate(campaigns, 1)),
        {
            "@id": SOFTWARE,
            "@type": "SoftwareApplication",
            "name": "dlbench",
            "url": {"@id": "README.md"},
            "version": __version__,
        },
        {
            "@id": MAKING,
            "@type": "CreateAction",
            "name": "Making of the tables",
            "instrument": {"@id": SOFTWARE},
            "object": {"@id": HISTORY},
            "result": _references(map(quote, tables)),
        },
        *people.entities.values(),
        *_licenses(licenses, campaigns),
    ]
    text = json.dumps({"@context": crate.CONTEXT, "@graph": graph}, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


class _People:
    """Authors, each an entity once; equal ids, as an ORCID, are of one."""

    def __init__(self):
        self.entities: dict[str, dict[str, Any]] = {}
        self._ids: dict[str, str] = {}

    def references(self, authors):
        ids = []
        for one in authors:
            known = {k: v for k, v in one.items() if k not in _LINKS or _LINK.fullmatch(str(v))}
            entity = crate.author(len(self._ids) + 1, known)
            key = json.dumps(dict(one), sort_keys=True, default=str)
            ids.append(self._ids.setdefault(key, entity["@id"]))
            self.entities.setdefault(ids[-1], entity)
        return _references(dict.fromkeys(ids))


def _campaign(number, one, people):
    entity: dict[str, Any] = {
        "@id": _id(number),
        "@type": "CreativeWork",
        "name": one.source or "a campaign",
        "description": one.text,
        "author": people.references(one.authors),
        "license": _references(map(_license_id, one.licenses)),
        "sha256": one.archive_sha256,
        "identifier": one.doi,
    }
    return {key: value for key, value in entity.items() if value}


def _file(name, campaign):
    suffix = name[name.rfind(".") :]
    return {
        "@id": quote(name),
        "@type": "File",
        "name": name,
        **({"encodingFormat": ENCODINGS[suffix]} if suffix in ENCODINGS else {}),
        **({"isBasedOn": {"@id": _id(campaign)}} if campaign else {}),
    }


def _licenses(licenses, campaigns):
    for one in sorted({*licenses, *(name for c in campaigns for name in c.licenses)}):
        yield {
            "@id": _license_id(one),
            "@type": "CreativeWork",
            "name": one,
            "description": f"{one}, as SPDX names it",
        }


def _license_id(spdx):
    return f"https://spdx.org/licenses/{spdx}"


def _id(number):
    return f"#campaign-{number}"


def _references(ids):
    return [{"@id": one} for one in ids]
