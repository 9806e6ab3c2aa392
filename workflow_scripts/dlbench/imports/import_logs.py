"""Import logs of other programs, results folders and runs tables as rows of our tables.

- Importers (dlbench/imports/importers) recognise logs by their content. Files that none recognises
  are left out and listed; if such a file is the only given path, that is an error.
- A log that cannot be read is listed, and all others are imported. If none can be read, no table is
  written. A loss that a log has and its importer does not read is noted in the run.
- Logs of different kinds that one program wrote into one folder belong to one run. A copy of a log,
  also a compressed one, is the same run.
- Rows of dlbench's own results folders (runs/*/run.json; damaged records are left out and listed)
  and runs tables (of results/tables, `dlbench export` or `dlbench import`) are imported unchanged.
- Folders are imported one after the other, and the steps of a run are written as soon as the run is
  complete, so memory holds the logs of one folder.
"""

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.common import phrases
from dlbench.common.files import atomic_write
from dlbench.imports import kinds, log_lines, table_rows
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogError, LogFile
from dlbench.imports.pattern_importer import PatternImporter
from dlbench.imports.table_rows import (
    MergedRun,
    PathPattern,
    Source,
    digest_of,
    group_by_run,
    merge,
    parse_fields,
)
from dlbench.log import event_log
from dlbench.records import run_record
from dlbench.study import contradictions
from dlbench.study.runs import is_of_statistics
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.table_columns import METRICS

BY_FIELDS, BY_PATH = "--fields", "--path-fields"
SUFFIXES = (".parquet", ".csv", ".json")
SPELLINGS = (b"loss", b"Loss", b"LOSS")
SHOWN_BYTES = 120  # bytes of a line
LOSS = re.compile(
    rb"loss\b[\"']?(?:, ?[\"']value[\"'])?[ \t]?[:=(]?[ \t]{0,4}-?\d{1,12}\.\d", re.IGNORECASE
)
# Columns of results; the others are settings.
MEASURED = {f.name for f in table_columns.RUNS if pa.types.is_floating(f.type)} - {"learning_rate"}


@dataclass
class Imports:
    """The result of an import.

    Attributes:
        rows: of the runs table.
        left_out: (file, reason) for each file that is part of no row.
        unread: files in left_out that are logs, but cannot be read or contradict the user's
            columns.
        files: number of files examined.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    files: int = 0

    def summary(self) -> str:
        """The lines to print at the end of an import."""
        lines = [f"left out: {name}: {why}" for name, why in self.left_out]
        total = f"{phrases.counted(len(self.rows), 'run')} of {phrases.counted(self.files, 'file')}"
        contradictory = sum(bool(row.get(contradictions.REASON)) for row in self.rows)
        if contradictory:
            total += f"; numbers of {phrases.counted(contradictory, 'run')} contradict one another"
        if self.unread:
            total += f"; {phrases.counted(len(self.unread), 'log')} could not be read"
        return "\n".join([*lines, total])


def import_paths(
    paths: Sequence[Path | str],
    fields: Mapping[str, Any] | None = None,
    path_fields: str | None = None,
    name: str | None = None,
    outputs: Mapping[str, Path | str] | None = None,
    report_progress: Callable[[Imports], None] | None = None,
    kind: str | None = None,
) -> Imports:
    """Import logs, results folders and runs tables.

    Args:
        paths: files and folders.
        fields: values for columns of the runs table that the logs lack, for all runs.
        path_fields: a pattern that takes further columns from paths
            (dlbench/imports/table_rows.py).
        name: name of the import, used as the study of its runs.
        outputs: paths of the tables to write, by name: runs and those of cells.OF_IMPORT.
        report_progress: called with the result so far after each folder.
        kind: the importer for files that several importers or none recognise.

    Raises:
        Error: a path or importer does not exist, a field is no column, the only file cannot be
            read, or tables are to be written and there are no rows.
    """
    own = kinds.of_user(kind) if kind else None
    outputs = dict(outputs or {})
    runs_output = outputs.pop("runs", None)
    with contextlib.ExitStack() as stack:
        writers = {
            table: stack.enter_context(_open_writer(table, outputs[table])) for table in outputs
        }
        job = _Import(
            parse_fields(fields or {}),
            pattern=PathPattern(path_fields) if path_fields else None,
            name=name,
            writers=writers,
            kind=own.name if own else kind,
            own=own,
            only_path=len(paths) == 1,
        )
        for candidates in kinds.candidates_by_folder(paths, is_results_folder):
            job.import_folder(candidates)
            if report_progress:
                report_progress(job.result)
        if runs_output:
            if not job.result.rows:
                raise Error(f"nothing was imported\n{job.result.summary()}")
            parquet_files.write(runs_output, job.result.rows, table_columns.RUNS)
    return job.result


def read_run(
    folder: Path | str,
    kind: str | PatternImporter = "auto",
    fields: Mapping[str, Any] | None = None,
    printed: str = "",
) -> MergedRun:
    """Read the one run whose logs are in a folder.

    Args:
        folder: folder of the logs; its subfolders are not searched.
        kind: an importer that must recognise one of the logs; auto: any importer. Patterns read
            the file `printed`.
        fields: values that the run's columns must have.

    Raises:
        Error: the folder has no run or several, or a log contradicts `fields`.
    """
    job = _Import(parse_fields(fields or {}))
    if isinstance(kind, PatternImporter):
        job.own, job.of_own = kind, printed
        kind = kind.name
    elif kind != "auto":
        job.kind = kind
    runs: list[list[Source]] = []
    for candidates in kinds.candidates_by_folder([folder], lambda below: False):
        if candidates[0].path.parent == Path(folder):
            runs += [sources for sources, _ in job.read_folder(candidates)]
    if kind != "auto":
        runs = [sources for sources in runs if kind in [source.kind for source in sources]]
    if len(runs) != 1:
        reasons = [f"{name}: {why}" for name, why in job.result.left_out]
        wanted = "run" if kind == "auto" else f"run with a log of kind {kind}"
        raise Error("; ".join([f"{folder}: expected one {wanted}, found {len(runs)}", *reasons]))
    run = merge(runs[0])
    table_rows.complete(run, {"the run": job.fields}, str(folder))
    return run


@contextlib.contextmanager
def _open_writer(kind: str, output: Path | str) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends tables to a file; the file is written atomically."""
    schema = METRICS if kind == "metrics" else table_columns.RUN_TABLES[kind]
    schema = parquet_files.table([], schema).schema
    with atomic_write(output) as part, parquet_files.writer(part, schema) as parquet:
        yield lambda rows: parquet.write_table(rows) if len(rows) else None


@dataclass
class _Import:
    """The state of an import.

    Attributes:
        kind: the importer for files that several importers or none recognise.
        own: an importer of the user's own patterns.
        of_own: name of a file that is read by `own`, whatever recognises it.
        only_path: whether the user gave a single path; then an error in that file is raised.
        logs: name of the first file with a log's content, by (its SHA-256, the folder if its
            importer ATTACHES).
        digests: SHA-256 of the logs of each run, by the run's id.
    """

    fields: dict[str, Any]
    pattern: PathPattern | None = None
    name: str | None = None
    writers: dict[str, Callable[[pa.Table], None]] = field(default_factory=dict)
    kind: str | None = None
    own: PatternImporter | None = None
    of_own: str = ""
    only_path: bool = False
    result: Imports = field(default_factory=Imports)
    logs: dict[tuple[str, str | None], str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def import_folder(self, candidates):
        """Import the files of one folder."""
        for sources, digest in self.read_folder(candidates):
            try:
                self._add_run(sources, digest)
            except Error as error:
                if self.only_path and candidates[0].is_given:
                    raise
                self._leave_unread(sources[0].path, error)

    def read_folder(self, candidates):
        """(Sources, digest) of each run that has logs among the files of one folder."""
        logs, attached = {}, []  # lists of the runs in a log, by program and kind
        for candidate in candidates:
            if candidate.path.is_dir() and not candidate.leads_out:
                self._add_results_folder(candidate)
                continue
            self.result.files += 1
            kind, sources = self._read_log(candidate)
            if not sources:
                continue
            module = self._importer(kind)
            if getattr(module, "ATTACHES", False):
                attached.append(sources)
            else:
                logs.setdefault(module.FAMILY, {}).setdefault(kind, []).append(sources)
        runs = [run for logs_by_kind in logs.values() for run in group_by_run(logs_by_kind)]
        digests = [digest_of([source.identity for source in run]) for run in runs]
        self._attach(runs, attached)
        return list(zip(runs, digests, strict=True))

    def _read_log(self, candidate):
        """(importer, Sources of the runs in a file); (None, []) if the file is left out."""
        why_unknown = ""
        try:
            if self.of_own and candidate.path.name == self.of_own:
                log, kind = LogFile(candidate.path), self.own.name
            else:
                log, kind, why_unknown = kinds.choose_importer(candidate, self.kind)
            if kind is None:
                if log and is_runs_table(log):
                    for row in parquet_files.table_rows(candidate.path):
                        self._add_row(row, candidate, {})
                else:
                    self._leave_unknown(candidate, why_unknown)
                return None, []
            module = self._importer(kind)
            # Runs in different folders may have equal logs of what ran beside them.
            attaches = getattr(module, "ATTACHES", False)
            folder = os.path.realpath(candidate.path.parent) if attaches else None
            if (log.sha256, folder) in self.logs:
                self._leave_out(candidate.name, f"the same log as {self.logs[log.sha256, folder]}")
                return None, []
            runs = list(_read(module, kind, log))
            if not attaches:
                note_unread(log, runs)
            sources = [
                Source(imported, kind, candidate.name, f"{log.sha256}:{number}")
                for number, imported in enumerate(runs)
            ]
            if sources:
                self.logs[log.sha256, folder] = candidate.name
            else:
                why = "no run of its own: it belongs to the run of another log in the folder"
                self._leave_out(candidate.name, why)
            return kind, sources
        except (Error, OSError) as error:
            if candidate.is_given and self.only_path:
                raise
            if why_unknown and not candidate.is_given:  # no log that the user's importer reads
                self._leave_unknown(candidate, why_unknown)
            else:
                self._leave_unread(candidate.name, error, candidate.path)
            return None, []

    def _importer(self, kind):
        return self.own if self.own and kind == self.own.name else kinds.load(kind)

    def _leave_out(self, name, why):
        self.result.left_out.append((name, why))

    def _leave_unknown(self, candidate, why):
        if candidate.is_given and self.only_path:
            hint = "; for patterns of your own, --kind FILE.yaml" if kinds.UNKNOWN in why else ""
            raise LogError(f"{candidate.path}: {why}{hint}")
        self._leave_out(candidate.name, why)
        if candidate.is_given:
            self.result.unread.append(candidate.name)

    def _leave_unread(self, name, error, path=""):
        """Leave out a log that cannot be read, with the error's text without the path."""
        self._leave_out(name, str(error).removeprefix(str(path or name)).lstrip(":, "))
        self.result.unread.append(name)

    def _attach(self, runs, attached):
        """Add logs that ATTACH to the run of their folder, if the folder has exactly one."""
        for source in (source for sources in attached for source in sources):
            if len(runs) == 1:
                runs[0].append(source)
            else:
                why = f"belongs to one run; the folder has {len(runs) or 'no'} runs"
                self._leave_out(source.path, f"{source.kind} {why}")

    def _add_run(self, sources, digest):
        run = merge(sources)
        first = run.sources[0]
        if not _has_results(run):
            why = "has the settings of a run, but no log in the folder has its results"
            self.result.left_out += [(source.path, why) for source in run.sources]
            return
        fields = {BY_FIELDS: self.fields}
        if self.pattern:
            fields[BY_PATH] = self.pattern.fields(first.path)
        table_rows.complete(run, fields, first.place)
        run_id = f"{table_rows.readable_id(run)}-{digest[:10]}"
        self.result.rows.append(table_rows.run_row(run, run_id, digest, self.name))
        for table, rows in table_rows.run_tables(run, run_id, self.writers):
            self.writers[table](rows)

    def _add_results_folder(self, folder):
        for row, run_tables, why_not in read_folder(folder.path):
            self.result.files += 1
            try:
                if why_not:
                    raise Error(why_not)
                self._add_row(row, folder, run_tables)
            except Error as error:
                self._leave_unread(folder.name, error)

    def _add_row(self, row, file, run_tables):
        """Add a row unchanged, except for its id if another run has the same."""
        row = contradictions.marked({k: value for k, value in row.items() if value is not None})
        run_id = row["run_id"]
        digest = row.get("log_sha256") or digest_of([run_id, repr(sorted(row.items()))])
        if self.digests.get(run_id, digest) != digest:
            run_id = f"{run_id}-{digest[:10]}"
        if run_id in self.digests or (digest, None) in self.logs:
            other = self.logs.get((digest, None), "one before")
            self._leave_out(f"{file.name}: {row['run_id']}", f"the same run as in {other}")
            return
        self.digests[run_id] = digest
        self.logs[digest, None] = file.name
        for name, value in self.fields.items():
            if row.get(name, value) != value:
                raise Error(
                    f"{file.name}: {row['run_id']}: {name} is {value} by {BY_FIELDS}, "
                    f"{row[name]} by the table"
                )
        origin = {"study": self.name, "source": file.name} | self.fields
        self.result.rows.append(origin | row | {"run_id": run_id})
        for kind, table in run_tables.items():
            if kind in self.writers:
                self.writers[kind](table_rows.with_run_id(table, run_id))


def _read(module, kind, log):
    """Yield the Imported of each run; a LogError if the importer failed."""
    try:
        yield from module.read(log)
    except (Error, OSError):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"[:200]
        raise LogError(f"{log.path}: the importer {kind} failed: {message}") from error


def _has_results(run):
    """Whether the logs have results of a run, not only its settings."""
    scores = any(row.keys() & set(event_log.SCORES) for row in run.evals)
    known = {name for name, value in run.columns.items() if value is not None}
    measured = len(run.steps) or known & MEASURED or scores or run.metrics
    return bool(measured or run.status != "ok")


def print_progress(imports: Imports) -> None:
    """Print the progress on stderr, always on the same line, if that is a terminal."""
    if sys.stderr.isatty():
        files, runs = phrases.counted(imports.files, "file"), len(imports.rows)
        text = f"\r{files}, {phrases.counted(runs, 'run')}"
        print(text, end="\x1b[K", file=sys.stderr, flush=True)


def is_results_folder(folder: Path) -> bool:
    """Whether a folder has records, like results/ and unpacked archives."""
    return next((folder / "runs").glob("*/run.json"), None) is not None


def read_folder(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, pa.Table], str]]:
    """Yield (row of the runs table, tables by name, "") of each run.

    The tables are those of steps, evals and samples that the run's folder has, and its metrics. A
    run that is left out is ({}, {}, why).
    """
    for path in sorted((folder / "runs").glob("*/run.json")):
        if not is_of_statistics(path.parent.name):
            continue  # a sentinel or a probe is no run of the study
        try:
            record = run_record.read(path)
            row, tables = record_row(record), _tables(path.parent, record["log_sha256"])
            rows = [{"run_id": "", **one} for one in record["summary"].get("metrics", [])]
            tables["metrics"] = parquet_files.table(rows, METRICS)
        except (Error, OSError, TypeError, KeyError) as error:
            yield {}, {}, f"{path.parent.name}: {error}"
            continue
        yield row, tables, ""


def record_row(record: dict[str, Any]) -> dict[str, Any]:
    """The row of the runs table for a record; study and learning gate are unknown.

    A TypeError, KeyError or Error if the record lacks a field or has one of another type.
    """
    from dlbench.results import run_rows  # which imports SciPy: slow

    provenance = record["provenance"]
    site = {"name": (provenance.get("site") or {}).get("name")}
    origin = SimpleNamespace(name=None, site=site, must_reach={}, with_found_batch=None)
    devices = " ".join(map(str, provenance.get("devices") or ())).lower()
    kind = next((kind for kind in ("gpu", "cpu") if kind in devices), None)
    return run_rows.row(record, origin, kind)


def _tables(folder, log_sha256):
    tables = {}
    for name, schema in table_columns.RUN_TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            continue
        try:
            parquet_files.check(path)
            if parquet_files.is_made_from(path, log_sha256):
                tables[name] = parquet_files.read(path, schema, earlier=True)
        except parquet_files.TableError:
            from dlbench.analysis import run_tables  # which imports SciPy: slow

            tables[name] = run_tables.table_from_logs(folder, name)
    return tables


def is_runs_table(log: LogFile) -> bool:
    """Whether a file is a runs table, by its columns."""
    head = log.head
    if log.path.suffix not in SUFFIXES:
        return False
    if head[:4] == b"PAR1":
        try:
            schema = pq.read_schema(log.path)
        except (OSError, pa.ArrowInvalid):
            return False
        names = set(schema.names)
        return b"schema_version" in (schema.metadata or {}) and {"run_id", "status"} <= names
    first = head.partition(b"\n")[0]
    if log.path.suffix == ".csv":
        return b"run_id" in first and b"status" in first
    return head.lstrip()[:1] == b"[" and b'"run_id"' in head and b'"status"' in head


def note_unread(log: LogFile, runs: Sequence[Imported]) -> None:
    """Add a note to each run without loss whose lines contain one."""
    without_loss = [run for run in runs if not _has_loss(run)]
    for first, block in log.blocks() if without_loss else ():
        if not any(spelling in block for spelling in SPELLINGS):
            continue
        for match in LOSS.finditer(block):
            number = first + block.count(b"\n", 0, match.start())
            for run in without_loss:
                if run.lines[0] <= number <= run.lines[1]:
                    run.notes.append(f"a loss that is not read: line {number}, {_line(match)}")
            without_loss = [
                run for run in without_loss if not run.lines[0] <= number <= run.lines[1]
            ]
            if not without_loss:
                return


def _has_loss(run):
    read = run.columns.get("final_loss") is not None or any(map(math.isfinite, run.steps.loss))
    return read or run.steps.nan_from is not None or any("loss" in note for note in run.notes)


def _line(match):
    """The line of a loss; of a long line SHOWN_BYTES around the loss."""
    block, start = match.string, match.start()
    begin = max(block.rfind(b"\n", 0, start) + 1, start - SHOWN_BYTES // 2)
    text = block[begin : begin + SHOWN_BYTES].partition(b"\n")[0]
    return log_lines.printable(text.decode("utf-8", "replace").strip(), SHOWN_BYTES)
