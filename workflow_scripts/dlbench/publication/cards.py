"""The metadata that hosts of data sets read: Zenodo's .zenodo.json, and Hugging Face's card.

Sources: https://help.zenodo.org/docs/github/describe-software/zenodo-json and
https://huggingface.co/docs/hub/datasets-cards, with datasets-manual-configuration there.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from markupsafe import escape

from dlbench import __version__
from dlbench.archive import crate
from dlbench.pages import page_text
from dlbench.pages.page import Page, Section, Table
from dlbench.publication.citations import Campaign

ZENODO, CARD = ".zenodo.json", "README.md"
KEYWORDS = ("benchmark", "deep learning", "high-performance computing", "performance")
MAX_CAMPAIGNS = 500  # in the card; the crate has all
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LARGEST = "1M<n<10M"
_ORCID = re.compile(r"\d{4}-\d{4}-\d{4}-\d{3}[\dX]")


def zenodo(
    title: str,
    summary: str,
    authors: Sequence[Mapping[str, Any]],
    licenses: Sequence[str],
    campaigns: Sequence[Campaign],
) -> bytes:
    """The content of .zenodo.json. Zenodo knows one licence; further ones are in its notes.

    Args:
        authors: as in CITATION.cff.
        licenses: SPDX identifiers, at least one.
    """
    content: dict[str, Any] = {
        "title": title,
        "description": f"<p>{escape(summary)}</p>",
        "upload_type": "dataset",
        "access_right": "open",
        "license": licenses[0].lower(),
        "creators": _creators(authors),
        "keywords": list(KEYWORDS),
        "references": sorted({one.text for one in campaigns}),
    }
    if len(licenses) > 1:
        content["notes"] = f"<p>Licences: {escape(', '.join(licenses))}</p>"
    if dois := sorted({one.doi for one in campaigns} - {""}):
        content["related_identifiers"] = [
            {"identifier": doi, "relation": "isDerivedFrom", "resource_type": "dataset"}
            for doi in dois
        ]
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode()


def card(
    title: str,
    summary: str,
    licenses: Sequence[str],
    campaigns: Sequence[Campaign],
    tables: Mapping[str, str],
    rows: int,
) -> bytes:
    """The content of README.md: a card with its header, for readers and for Hugging Face.

    Args:
        tables: {name: what it has} of those in tables/; the first is what is loaded by default.
        rows: of the first table.
    """
    size = next((name for most, name in SIZES if rows < most), LARGEST)
    header = {
        "pretty_name": title,
        "license": [_hub_license(one) for one in licenses],
        "tags": ["benchmark", "performance", "tabular"],
        "size_categories": [size],
        "configs": [
            {"config_name": name, "data_files": f"tables/{name}.parquet"}
            | ({"default": True} if number == 0 else {})
            for number, name in enumerate(tables)
        ],
    }
    listed: list[list[Any]] = [
        [
            one.source,
            one.text,
            str(len(one.files)),
            one.archive_sha256 or "a results folder, no archive",
        ]
        for one in campaigns[:MAX_CAMPAIGNS]
    ]
    left = len(campaigns) - len(listed)
    note = (f"{left} more are in {crate.METADATA}.",) if left else ()
    page = Page(
        title,
        summary,
        (
            Section("Tables", (), Table(("table", "content"), [[*row] for row in tables.items()])),
            Section(
                "Campaigns",
                note,
                Table(
                    ("campaign", "by, with licence", "sessions", "archive's SHA-256"), listed, (2,)
                ),
            ),
        ),
    )
    dumped = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    return f"---\n{dumped}---\n\n{page_text.markdown(page)}\n{_USE}".encode()


_USE = f"""### Use

`history/` has the sessions as they were measured, one file each, which is never changed. To merge
it with others, copy its files into theirs; dlbench finds changes in it, judges new campaigns by it,
and makes a website of it. `tables/` was made of it with dlbench {__version__}.

```sql
select * from 'tables/series.parquet';
```
"""


def _creators(authors):
    """Each once."""
    return list({json.dumps(one): one for one in map(_creator, authors)}.values())


def _creator(author):
    """An author as Zenodo has them: a person by family name first."""
    family = " ".join(filter(None, (author.get("name-particle"), author.get("family-names"))))
    names = [part for part in (family, author.get("given-names")) if part]
    creator = {"name": str(author.get("name") or ", ".join(map(str, names)))}
    if author.get("affiliation"):
        creator["affiliation"] = str(author["affiliation"])
    if found := _ORCID.search(str(author.get("orcid") or "")):
        creator["orcid"] = found[0]
    return creator


def _hub_license(spdx):
    """A licence by Hugging Face's name, which has no -only and no -or-later."""
    return re.sub(r"-(only|or-later)$", "", spdx.lower())
