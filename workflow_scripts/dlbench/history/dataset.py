"""The history: one Parquet file a session, which is written once and never changed.

    history/site=SITE/year=YEAR/SESSION-DIGEST.parquet

- The digest is of the rows, so that sites merge their histories by copying files: equal names are
  equal files, and nothing is overwritten. Values in the names of folders are percent-encoded.
- A session is added again where its campaign is corrected or has grown; the reader chooses: a file
  with all logs of another replaces it, of equal ones that of an archive counts, and a file named
  by `replaces` in the metadata of another is replaced. Files of one session that are neither are
  contradictory, and none of them counts.
- What was measured wrongly is taken back by a mark, a file SESSION-DIGEST.withdrawn with the reason
  in it, which is copied along. It holds for all files with these logs, and what such a file had
  replaced does not count again.
- Rows are checked when they are written and whenever they are read: files of other sites are copied
  into it, so a column may have anything.
"""

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from dlbench.common.files import json_digest
from dlbench.log.event_fields import FACTS, INDEX, MAX_INDEX, MOST, TEXTS, Kind
from dlbench.records import run_record
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.parquet_files import TableError
from dlbench.tables.table_columns import PARTITION, SESSIONS

_LOG = math.log(MOST)
# Least and most of numbers and dates.
RANGES: dict[str, tuple[Any, Any]] = {
    "started_at": (np.datetime64("2020"), np.datetime64("2100")),
    **dict.fromkeys(("n", "failed", "disturbed", "missed"), (0, MAX_INDEX)),
    **{"mean_log": (-_LOG, _LOG), "scatter": (0, 2 * _LOG), "mean": (0.5 / MOST, 2 * MOST)},
    **dict.fromkeys(("mean_ci95_low", "mean_ci95_high"), (0, 1e300)),
}
_MACHINES = ({"nodes", "gpus", "gpus_per_node"}, {"device_model"})  # as machines.facts has them
JSON = {
    **dict.fromkeys(("fields", "meaning"), FACTS),
    "facts": run_record.TEXTS,
    "machine_facts": Kind(
        f"a mapping with lists of texts in {_MACHINES[0]} or {_MACHINES[1]}",
        lambda facts: (
            FACTS.accepts(facts)
            and facts.keys() in _MACHINES
            and all(
                INDEX.accepts(value) if name == "gpus_per_node" else TEXTS.accepts(value)
                for name, value in facts.items()
            )
        ),
    ),
}
NEEDED = {
    *("session", "started_at", "condition_id", "condition", "metric", "meaning", "n", "facts"),
    *("machine_key", "machine", "machine_facts"),
}
OF_MEASURED = {"mean_log", "mean"}  # needed where runs completed


def check(table: pa.Table, where: Path | str) -> None:
    """Check rows of a history, in those of its columns that they have.

    Raises TableError: a value cannot be; the message has its column and row.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise TableError(f"{where}: expected texts in UTF-8: {error}") from error
    measured = table["n"].to_numpy() > 0 if "n" in table.column_names else None
    for name, column in zip(table.column_names, table.columns, strict=True):
        absent = column.is_null().to_numpy()
        wrong, expected = absent & (name in NEEDED), "a text"
        if name in OF_MEASURED and measured is not None:
            wrong |= absent & measured
        if name in RANGES:
            (least, most), values = RANGES[name], column.to_numpy()
            wrong |= ~((values >= least) & (values <= most)) & ~absent
            expected = f"{least} to {most}"
        if wrong.any():
            row = int(np.argmax(wrong))
            found = "nothing" if absent[row] else values[row]
            raise TableError(f"{where}: {name}, row {row + 1}: expected {expected}, found {found}")
        for text in column.unique().to_pylist() if name in JSON else ():
            if text is not None and (reason := _wrong(name, text)):
                raise TableError(f"{where}: {reason}")


@functools.lru_cache(maxsize=100_000)
def _wrong(name, text):
    """What is wrong with a text of JSON; "" if nothing is."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return f"expected {name} to be JSON, of finite numbers and whole characters: {text!r:.80}"
    return run_record.wrong(value, JSON[name], name)


CURRENT, REPLACED, WITHDRAWN = "current", "replaced", "withdrawn"
CONTRADICTORY, DAMAGED = "contradictory", "damaged"
REPLACES = "replaces"  # in a file's metadata: names of files, with a comma between
NAME_DIGITS, THREADS = 12, 4
MAX_WAITING = 1000  # tables of files until they are joined: many small ones take much memory


@dataclass(frozen=True)
class Standing:
    """Whether a file of the history counts, and why not."""

    file: str
    site: str
    session: str
    standing: str = CURRENT
    reason: str = ""


def add(folder: Path, rows: Sequence[Row], replaces: Iterable[str] = ()) -> str:
    """Write the rows of a session, unless they are there, and return the file's name in `folder`.

    Args:
        rows: of SESSIONS, with `site`.
        replaces: names of files that these rows correct.
    """
    site, session, started_at = (rows[0][name] for name in ("site", "session", "started_at"))
    plain = [{key: value for key, value in row.items() if key != "site"} for row in rows]
    replaces = ",".join(sorted(replaces))
    digest = json_digest([json.dumps(plain, sort_keys=True, default=str), replaces])[:NAME_DIGITS]
    name = f"{_folder(site)}/year={started_at.year}/{quote(session, safe='')}-{digest}.parquet"
    if not (folder / name).exists():
        check(parquet_files.table(plain, SESSIONS), name)
        parquet_files.write(folder / name, plain, SESSIONS, replaces=replaces)
    return name


def of_session(folder: Path, site: str, session: str) -> list[str]:
    """The names of the files of a session in a history."""
    pattern = f"{_folder(site)}/year=*/*.parquet"
    paths = (path for path in folder.glob(pattern) if _session(path) == session)
    return sorted(str(path.relative_to(folder)) for path in paths)


def rows_of(folder: Path, name: str, columns: Sequence[str]) -> list[Row]:
    """The rows of a file. Raises TableError: it is damaged, or a value cannot be."""
    return _table(folder / name, columns).to_pylist()


def logs(folder: Path, name: str) -> frozenset[str]:
    """Beginnings of the digests of all logs of a file. Raises as `rows_of`."""
    return frozenset(text for row in rows_of(folder, name, ["logs"]) for text in row["logs"] or ())


def of_archive(folder: Path, name: str) -> bool:
    """Whether a file is of an archive. Raises as `rows_of`."""
    return any(row["archive_sha256"] for row in rows_of(folder, name, ["archive_sha256"]))


def standings(folder: Path) -> list[Standing]:
    """How each file of a history stands, in the order of their names."""
    sessions: dict[tuple[str, str], list[str]] = {}
    found = []
    for path in sorted(folder.glob("site=*/year=*/*.parquet")):
        site = unquote(path.parents[1].name.removeprefix("site="))
        key, name = (site, _session(path)), str(path.relative_to(folder))
        if name.encode(errors="replace").decode() == name:
            sessions.setdefault(key, []).append(name)
        else:
            file, of_site, session = map(ascii, (name, *key))
            found.append(Standing(file, of_site, session, DAMAGED, "expected a name in UTF-8"))
    for key, names in sessions.items():
        found += _judged(folder, *key, names)
    return found


def read(
    folder: Path, all_standings: Sequence[Standing], columns: Sequence[str]
) -> tuple[pa.Table, list[Standing]]:
    """(columns of all files that count, with `site` and `file`; standings of damaged ones)."""
    counted = [one for one in all_standings if one.standing == CURRENT]
    tables, damaged = [], []

    def of_file(one):
        try:
            return _table(folder / one.file, columns)
        except parquet_files.TableError as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        for one, table in zip(counted, pool.map(of_file, counted), strict=True):
            if isinstance(table, parquet_files.TableError):
                damaged.append(Standing(one.file, one.site, one.session, DAMAGED, str(table)))
                continue
            for name, value in (("site", one.site), ("file", one.file)):
                indices = pa.array([0] * len(table), pa.int32())
                table = table.append_column(
                    name, pa.DictionaryArray.from_arrays(indices, pa.array([value]))
                )
            tables.append(table.replace_schema_metadata(None))
            if len(tables) >= MAX_WAITING:
                tables = [_joined(tables)]
    if not tables:
        names = [*_schema(columns), pa.field("site", pa.string()), pa.field("file", pa.string())]
        return pa.schema(names).empty_table(), damaged
    return _joined(tables), damaged


def _table(path, columns):
    table = parquet_files.read(path, _schema(columns), earlier=True)
    check(table, path)
    return table


def _schema(columns):
    return pa.schema([SESSIONS.field(name) for name in columns])


def _judged(folder, site, session, names) -> Iterator[Standing]:
    """Standings of the files of one session."""
    marks = {name: (folder / name).with_suffix(".withdrawn") for name in names}
    left = {name: _reason(mark) for name, mark in marks.items() if mark.is_file()}
    replaced: Mapping[str, str] = {}
    if len(names) > 1:
        contents = {}
        for name in names:
            try:
                contents[name] = logs(folder, name)
            except parquet_files.TableError as error:
                if name in left:
                    continue  # it is of no more use
                # Reading says which of them is damaged.
                reason = f"a file of this session is damaged: {error}"
                for other in names:
                    standing = (WITHDRAWN, left[other]) if other in left else (DAMAGED, reason)
                    yield Standing(other, site, session, *standing)
                return
        left |= _withdrawn_with(folder, contents, left)
        replaced = _replaced(folder, contents)
    for name, reason in sorted(left.items()):
        yield Standing(name, site, session, WITHDRAWN, reason)
    replaced = {name: by for name, by in replaced.items() if name not in left}
    for name, by in replaced.items():
        yield Standing(name, site, session, REPLACED, f"by {Path(by).name}")
    counting = [name for name in names if name not in replaced and name not in left]
    for name in counting:
        others = ", ".join(Path(other).name for other in counting if other != name)
        reason = f"it differs from {others}, which is of the same session" if others else ""
        yield Standing(name, site, session, CONTRADICTORY if others else CURRENT, reason)


def _reason(mark):
    text = mark.read_text(encoding="utf-8", errors="replace").strip()
    return text or "no reason given"


def _withdrawn_with(folder, logs_of, left):
    """{name: reason} of files that have what was taken back in others, and correct none of them."""
    found = {}
    for name in sorted(left.keys() & logs_of.keys()):
        for other in sorted(logs_of.keys() - left.keys()):
            mine, its = logs_of[name], logs_of[other]
            if (mine <= its or its <= mine) and name not in _corrected_by(folder, other):
                found[other] = f"{left[name]} (of {Path(name).name}, which has the same runs)"
    return found


def _corrected_by(folder, name):
    """Names of the files that a file corrects."""
    return parquet_files.file_metadata(folder / name).get(REPLACES, "").split(",")


def _replaced(folder, logs_of) -> Mapping[str, str]:
    """{name of a file: that of the one by which it is replaced} of the files of a session.

    `logs_of`: {name of a file: its logs}.
    """
    names = list(logs_of)
    replaced: dict[str, str] = {}
    for name in names:
        replaced |= {old: name for old in _corrected_by(folder, name) if old in names}
    # The last of equal ones counts: with an archive first, then by name.
    content = {name: (logs_of[name], of_archive(folder, name), name) for name in names}
    for name in names:
        for other in names:
            if name == other or name in replaced or other in replaced:
                continue
            mine, its = content[name], content[other]
            if mine[0] < its[0] or (mine[0] == its[0] and mine[1:] < its[1:]):
                replaced[name] = other
    return replaced


def _joined(tables):
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _folder(site):
    return f"{PARTITION[0]}={quote(site, safe='')}"


def _session(path):
    return unquote(path.stem.rpartition("-")[0])
