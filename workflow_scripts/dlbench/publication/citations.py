"""Whose campaigns a history has, and under which licences.

The licence of a collection is that of its campaigns where all have the same one. Where they differ,
or one names none, whoever publishes has to say it, and each campaign keeps its own.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.archive import crate
from dlbench.common import phrases
from dlbench.history.history_rows import HistoryRows

TEXTS = ("citation", "source")  # columns that are read beside those of the analysis
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


@dataclass(frozen=True)
class Campaign:
    """An archive or results folder, with its sessions that count.

    Attributes:
        files: of the history, relative to it.
        archive_sha256: "" of a results folder.
        citation: of its CITATION.cff, {} if it has none.
    """

    source: str
    archive_sha256: str
    study: str
    files: tuple[str, ...]
    citation: Mapping[str, Any]

    @property
    def licenses(self) -> tuple[str, ...]:
        """SPDX identifiers; none: it names no licence."""
        named = self.citation.get("license")
        ids = named if isinstance(named, list) else [named]
        return tuple(str(one) for one in ids if one and _SPDX.fullmatch(str(one)))

    @property
    def authors(self) -> list[dict[str, str]]:
        """Those who have a name, as in CITATION.cff, their texts alone."""
        named = self.citation.get("authors")
        texts = [
            {key: value for key, value in one.items() if isinstance(value, str)}
            for one in (named if isinstance(named, list) else ())
            if isinstance(one, Mapping)
        ]
        return [one for one in texts if crate.author(0, one)["name"]]

    @property
    def doi(self) -> str:
        return str(self.citation.get("doi") or "")

    @property
    def text(self) -> str:
        """Who made it: authors, title, licence."""
        names = ", ".join(dict.fromkeys(crate.author(0, one)["name"] for one in self.authors))
        title = self.citation.get("title") or self.study or self.source
        parts = [
            f"{names}: {title}" if names else str(title),
            " and ".join(self.licenses),
            self.doi,
        ]
        return ". ".join(filter(None, parts))


def campaigns(rows: HistoryRows) -> list[Campaign]:
    """The campaigns of a history, by their sources."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    codes, first_rows = np.unique(rows.codes["file"], return_index=True)
    for code, first in zip(codes.tolist(), first_rows.tolist(), strict=True):
        names = ("source", "archive_sha256", "study", "citation")
        source, digest, study, citation = (rows.text(name, first) or "" for name in names)
        key = source, digest, study, citation
        found.setdefault(key, []).append(rows.texts["file"][code])
    return [
        Campaign(source, digest, study, tuple(sorted(files)), json.loads(citation or "{}"))
        for (source, digest, study, citation), files in sorted(found.items())
    ]


def licenses(all_campaigns: Sequence[Campaign], given: str | None) -> tuple[str, ...]:
    """The licence of a collection of campaigns, as SPDX identifiers.

    Args:
        given: the one that whoever publishes names.

    Raises:
        Error: none is given, and campaigns have several or name none; or it is no identifier.
    """
    if given:
        if not _SPDX.fullmatch(given):
            raise Error(f"--license {given}: expected an SPDX identifier, such as CC-BY-4.0")
        return (given,)
    counts: dict[tuple[str, ...], int] = {}
    for one in all_campaigns:
        counts[one.licenses] = counts.get(one.licenses, 0) + 1
    if len(counts) == 1 and () not in counts:
        return next(iter(counts))
    said = [
        f"{phrases.counted(count, 'campaign')}: {' and '.join(ids) or 'no licence is known'}"
        for ids, count in sorted(counts.items())
    ]
    raise Error(
        "the licence of the collection is not known: name it with --license, as an SPDX "
        f"identifier such as CC-BY-4.0, which all licences must allow ({'; '.join(said)})"
    )


def authors(all_campaigns: Sequence[Campaign]) -> list[dict[str, str]]:
    """The authors of all campaigns, each once, as in CITATION.cff."""
    found = {
        json.dumps(one, sort_keys=True): one
        for campaign in all_campaigns
        for one in campaign.authors
    }
    return list(found.values())
