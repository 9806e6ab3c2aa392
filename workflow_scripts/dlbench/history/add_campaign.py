"""Add the sessions of one campaign, an archive or a results folder, to the history.

- An archive is verified first: each digest, both manifests, each record with its files. If anything
  differs, nothing of it enters, and its receipt says what.
- Of a results folder the records' own digests are checked. The session that is running waits: it
  enters once all of its runs have records.
- A session that is there already is not written again, unless it has grown or comes from an
  archive now. One that is there with other logs is refused, unless the config says that this
  source `corrects` it.
- A source that is refused fails nothing: the others enter, and `refusals` reports it at the end.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error
from dlbench.archive import verify_archive
from dlbench.common import terminal
from dlbench.common.files import read_json, sha256, write_json
from dlbench.history import dataset, history_rows, sources
from dlbench.records import run_record
from dlbench.study import goals
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row


@dataclass(frozen=True)
class _Campaign:
    """What a source has; `study` is its name, None: the records have it."""

    records: list[dict[str, Any]]
    study: str | None
    missed_gates: dict[str, bool]


RUNS = "tables/runs.parquet"  # in a results folder
_STUDY = re.compile(r"^study: .*$", re.MULTILINE)


def add(source: sources.Source, history: Path) -> dict[str, Any]:
    """Add what is new of a source, and write its receipt.

    Returns:
        The receipt: `files` of the history that are of this source, and texts on what was
        `refused`, what `waiting`, and further `notes`.
    """
    state = source.state()  # before it is read: what changes meanwhile is added next time
    receipt: dict[str, Any] = {"source": source.path, "state": state, "archive_sha256": None}
    receipt |= {"files": [], "refused": [], "waiting": [], "notes": []}
    note = receipt["notes"].append
    try:
        if Path(source.path).is_file():
            campaign = _from_archive(Path(source.path), note)
            receipt["archive_sha256"] = sha256(source.path)
        else:
            campaign = _from_folder(Path(source.path), receipt["waiting"].append, note)
        records = campaign.records
        if not records and not receipt["waiting"]:
            raise Error("expected records of runs (runs/*/run.json), found none: was it trained?")
        common = {"source": Path(source.path).name, "archive_sha256": receipt["archive_sha256"]}
        common |= {"study": campaign.study} if campaign.study else {}
        for session, runs in history_rows.by_session(records, note).items():
            try:
                rows = history_rows.rows_of_session(
                    session, runs, source.options, note, campaign.missed_gates
                )
                rows = [row | common for row in rows]
                receipt["files"].append(_add_session(history, rows, source.options))
            except Error as error:
                receipt["refused"].append(str(error))
    except (Error, OSError) as error:
        receipt["refused"].append(str(error))
    receipt["notes"] = list(dict.fromkeys(receipt["notes"]))  # one for each of several runs
    write_json(source.receipt, receipt)
    return receipt


def refusals(receipts: Iterable[Path]) -> list[str]:
    """One text for each source, or session of it, that was refused."""
    lines = []
    for path in receipts:
        receipt = read_json(path) or {}
        name = receipt.get("source", path)
        lines += [f"{name}: {_without(reason, name)}" for reason in receipt.get("refused", ())]
    return lines


def lines(receipt: Mapping[str, Any]) -> list[str]:
    """What the log says of a source that was added."""
    name = receipt["source"]
    parts = ((key, text) for key in ("refused", "waiting", "notes") for text in receipt[key])
    own = [f"{name}: {key}: {_without(text, name)}" for key, text in parts]
    head = f"{name}: {len(receipt['files'])} session(s) in the history"
    return list(map(terminal.plain, (head, *own)))


def _without(text, name):
    """A message without the name of its source at the beginning, which is there already."""
    return text.removeprefix(f"{name}: ")


def _from_archive(path, note) -> _Campaign:
    """What an archive has. Raises Error if it is none, or was changed."""
    with verify_archive.open_bag(path) as bag:
        if problems := verify_archive.problems(bag):
            shown = "; ".join(verify_archive.summarise(problems)[: verify_archive.MAX_OF_A_KIND])
            raise Error(
                f"{path}: it was changed after it was written, or is no archive: {shown}. Take it "
                "anew from its origin, or leave it out"
            )
        names = filter(verify_archive.RECORD.fullmatch, bag.payload)
        records = [
            run_record.parsed(bag.read(f"data/{name}", verify_archive.MAX_RECORD_BYTES), name)
            for name in names
        ]
        config = bag.read("data/config.yaml") if "data/config.yaml" in bag.entries else b""
        with tempfile.TemporaryDirectory() as place:
            verify_archive.unpack(bag, place, f"results/{RUNS}".__eq__)
            found = _STUDY.search(config.decode(errors="replace"))
            study = str(yaml.safe_load(found[0])["study"]) if found else None
            return _Campaign(records, study, _missed_gates(Path(place, "results", RUNS), note))


def _from_folder(path, wait: Callable[[str], None], note) -> _Campaign:
    """What a results folder has, but for the records of a session that goes on."""
    folder = sources.results_folder(path)
    if folder is None:
        raise Error(f"{path}: expected a results folder, with runs/*/run.json in it")
    records = []
    for file in sorted(folder.glob("runs/*/run.json")):
        try:
            record = run_record.read(file)
            run_record.check(record)
            records.append(record)
        except (run_record.RecordError, OSError) as error:
            note(str(error))
    going_on = _going_on(folder)
    if going_on:
        wait(
            f"session {going_on} goes on, or was interrupted: it enters when all of its runs have "
            "records (start the workflow there again if it was interrupted)"
        )
    ended = [r for r in records if (r["provenance"].get("session") or {}).get("id") != going_on]
    return _Campaign(ended, None, _missed_gates(folder / RUNS, note))


def _missed_gates(table, note):
    """{digest of a run's log: whether it missed its learning gate} of the runs that have one.

    A gate is part of a study, so its outcome stands in the table of runs, not in a record.
    """
    if not table.is_file():
        return {}
    try:
        runs = parquet_files.read_any(table)
        gates, logs = (runs[name].to_pylist() for name in ("learning_gate", "log_sha256"))
    except (parquet_files.TableError, KeyError) as error:
        note(f"learning gates are not known: {error}")
        return {}
    judged = zip(logs, gates, strict=True)
    return {log: gate != goals.REACHED for log, gate in judged if gate}


def _going_on(folder):
    """The id of the session in a results folder that has not ended; None if all have."""
    session = (read_json(folder / "sessions" / "current.json") or {}).get("id")
    done = folder / "sessions" / f"{session}.done"
    return session if session and not done.exists() else None


def _add_session(history: Path, rows: Sequence[Row], options: Mapping[str, Any]) -> str:
    """Add the rows of a session if they are new. Returns the name of its file in the history."""
    site, session = rows[0]["site"], rows[0]["session"]
    mine = {text for row in rows for text in row["logs"]}
    names = dataset.of_session(history, site, session)
    known = {}
    for name in names:
        try:
            known[name] = dataset.logs(history, name)
        except parquet_files.TableError:
            continue  # the reader names it; a whole one beside it does no harm
    if options.get("corrects"):
        return dataset.add(history, rows, [n for n, logs in known.items() if logs != mine])
    for name, logs in known.items():
        if mine < logs:
            return name  # runs of it were forgotten since
        if mine == logs and (not rows[0]["archive_sha256"] or dataset.of_archive(history, name)):
            return name
    if other := next((name for name, logs in known.items() if not logs <= mine), None):
        difference = _difference(history, other, rows)
        raise Error(
            f"session {session} is in the history already, with other logs: {difference}. If this "
            f"source is the right one, give its entry corrects: true; if {history / other} is, "
            "leave this source out"
        )
    return dataset.add(history, rows)


def _difference(history, name, rows):
    """The condition in which rows differ most from those of a file, with both numbers."""
    columns = ["condition", "metric", "mean_log", "mean", "n"]
    there = dataset.rows_of(history, name, columns)
    old = {(row["condition"], row["metric"]): row for row in there if row["n"]}
    new = {(row["condition"], row["metric"]): row for row in rows if row["n"]}
    pairs = [(old[key], row) for key, row in new.items() if key in old]
    if not pairs:
        return "no condition is in both"
    a, b = max(pairs, key=lambda pair: abs(pair[0]["mean_log"] - pair[1]["mean_log"]))
    return (
        f"{a['condition']}: {a['metric']} {a['mean']:.4g} ({a['n']} runs) there, "
        f"{b['mean']:.4g} ({b['n']} runs) here"
    )
