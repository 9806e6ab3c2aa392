"""Write a history as a data set into a folder, to upload to Zenodo, Hugging Face or elsewhere.

    history/            the files of the history
    tables/             series, findings, changes and campaigns, as plain Parquet
    README.md, .zenodo.json, ro-crate-metadata.json

- Equal histories give equal bytes: there is no date of making in them.
- A folder that was written before is brought up to date: its crate lists what is ours in it.
- The card leads to tables, not to the history: these have what counts, as plain texts and numbers.
  It leads to none without rows, which Hugging Face's reader refuses.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.archive import crate
from dlbench.common import phrases
from dlbench.common.files import atomic_write, read_json
from dlbench.history import analyse_history, dataset
from dlbench.history.history_rows import day
from dlbench.publication import cards, citations, history_crate
from dlbench.tables import history_columns, parquet_files

TITLE = "Deep-learning benchmarks"
TABLES = {
    "series": "one row a session, condition and metric, with 95 % intervals",
    "findings": "changes of level: since when, by how much, what else changed then",
    "changes": "the size of each finding in its conditions",
    "campaigns": "the files of the history, whether each counts, and why not",
}
OURS = re.compile(
    r"history/site=[^/]+/year=\d+/[^/]+\.(parquet|withdrawn)"
    rf"|tables/({'|'.join(TABLES)})\.parquet|README\.md|\.zenodo\.json"
)


@dataclass(frozen=True)
class DataSet:
    """What was written: how many sessions count, of which campaigns, and the licence.

    Attributes:
        remarks: texts on what is left out.
    """

    sessions: int
    campaigns: Sequence[citations.Campaign]
    licenses: Sequence[str]
    remarks: Sequence[str]


def write(
    history: Path,
    names_of_machines: Mapping[str, Sequence[str]],
    output: Path,
    title: str = TITLE,
    license_id: str | None = None,
) -> DataSet:
    """Write the data set of a history.

    Args:
        names_of_machines: `machines` of a config.
        license_id: of the whole, an SPDX identifier; None: that of all campaigns.

    Raises:
        Error: there is no history, or no session in it; the folder holds something else; the
            licence or the authors are not known.
    """
    earlier = _earlier(output)
    found = analyse_history.analyse(history, names_of_machines, citations.TEXTS)
    if found.rows is None or found.series is None or not len(found.rows.dates):
        raise Error(f"{history}: expected a history with sessions that count, found none")
    campaigns = citations.campaigns(found.rows)
    licenses = citations.licenses(campaigns, license_id)
    authors = citations.authors(campaigns) or [{"name": "The authors of the campaigns"}]
    sessions = sum(len(one.files) for one in campaigns)
    dates = found.rows.dates
    summary = (
        f"{phrases.counted(sessions, 'session')} of {phrases.counted(len(campaigns), 'campaign')} "
        f"on {phrases.counted(len(found.rows.places()), 'machine')}, {day(dates.min())} to "
        f"{day(dates.max())}: how fast they train neural networks, measured with dlbench."
    )
    tables = {
        "series": found.series,
        "findings": parquet_files.table(found.findings, history_columns.FINDINGS),
        "changes": parquet_files.table(found.changes, history_columns.CHANGES),
        "campaigns": parquet_files.table(found.campaigns, history_columns.CAMPAIGNS),
    }
    written = []
    for name, table in tables.items():
        written.append(f"tables/{name}.parquet")
        with atomic_write(output / written[-1]) as part:
            pq.write_table(_plain(table), part, compression="zstd")
    for row in found.campaigns:
        path = history / row["file"]
        for file in (path, path.with_suffix(".withdrawn")):
            if row["standing"] != dataset.DAMAGED and file.is_file():
                written.append(f"history/{file.relative_to(history)}")
                with atomic_write(output / written[-1], force=False) as part:
                    shutil.copyfile(file, part)
    filled = {name: text for name, text in TABLES.items() if len(tables[name])}
    texts = {
        cards.ZENODO: cards.zenodo(title, summary, authors, licenses, campaigns),
        cards.CARD: cards.card(title, summary, licenses, campaigns, filled, len(found.series)),
    }
    texts[crate.METADATA] = history_crate.metadata(
        *(title, summary, day(dates.max()), authors, licenses, campaigns),
        [*written, *texts],
    )
    for name, content in texts.items():
        with atomic_write(output / name) as part:
            part.write_bytes(content)
    for name in set(earlier) - {*written, *texts}:
        (output / name).unlink(missing_ok=True)
    return DataSet(sessions, campaigns, licenses, found.remarks)


def _earlier(output: Path) -> list[str]:
    """The files of an earlier data set in a folder."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return []
    graph = (read_json(output / crate.METADATA) or {}).get("@graph") if output.is_dir() else None
    entities = [one for one in graph if isinstance(one, dict)] if isinstance(graph, list) else []
    if not any(one.get("@id") == history_crate.MAKING for one in entities):
        raise Error(
            f"{output}: expected no such folder, an empty one or an earlier data set, found "
            "something else: name another folder"
        )
    names = (unquote(str(one.get("@id"))) for one in entities)
    return [name for name in names if OURS.fullmatch(name) and ".." not in name]


def _plain(table: pa.Table) -> pa.Table:
    """A table whose texts are plain, and without our metadata."""
    fields = [
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
        for f in table.schema
    ]
    return table.cast(pa.schema(fields)).replace_schema_metadata(None)
