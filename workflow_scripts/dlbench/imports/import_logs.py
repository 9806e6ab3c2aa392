"""Other programs' logs become rows of our tables (dlbench/tables/table_columns.py).

- Files are known by their content (dlbench/imports/importers); what no importer knows is left out
  and named, and is an error where it is all that was given.
- A log that cannot be read ends nothing: it is named, all others are written. Where nothing can be
  read, nothing is written.
- What lies in one folder and is of one program, but of different kinds, is of one run. A log that
  was met before, elsewhere or packed, is the same run.
- Folders are done one after the other, and rows of steps are written when a run is done.
"""

import contextlib
import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.common.files import written_whole
from dlbench.imports import finding, own_results, table_rows
from dlbench.imports.import_fields import PathPattern, checked
from dlbench.imports.log_file import LogError
from dlbench.imports.merging import Source, merged
from dlbench.tables import parquet_files, run_columns, table_columns

BY_FIELDS, BY_PATH = "--fields", "--path-fields"
# Numbers of what was done, not of what was asked for.
MEASURED = {f.name for f in table_columns.RUNS if pa.types.is_floating(f.type)} - {"learning_rate"}


@dataclass
class Imports:
    """What came of an import.

    Attributes:
        rows: of the runs table.
        left_out: (file, why) of what is in none of them.
        unread: those of them that are logs, but cannot be read or are not as was said.
        files: how many files were looked at.
    """

    rows: list = field(default_factory=list)
    left_out: list = field(default_factory=list)
    unread: list = field(default_factory=list)
    files: int = 0

    def summary(self):
        """The words at the end of an import."""
        lines = [f"left out: {name}: {why}" for name, why in self.left_out]
        unread = f"; {len(self.unread)} logs could not be read" if self.unread else ""
        return "\n".join([*lines, f"{len(self.rows)} runs of {self.files} files{unread}"])


def import_paths(
    paths, fields=None, path_fields=None, name=None, outputs=None, say=None, kind=None
):
    """Import logs, results folders and runs tables.

    Args:
        paths: files and folders.
        fields: columns of the runs table that the logs lack, for all runs.
        path_fields: a pattern that takes more of them from paths
            (dlbench/imports/import_fields.py).
        name: what the import is called: the study of its runs.
        outputs: where to write the tables, by their names: runs, steps, evals, samples.
        say: called with words on how far it is.
        kind: the importer for files that several know, and for those that none knows.

    Returns:
        An Imports.

    Raises:
        Error: there is no such path or importer, a field is no column; the only file cannot be
            read; tables are to be written and there are no rows.
    """
    if kind and kind not in plugins.names(finding.KIND):
        names = plugins.names(finding.KIND)
        raise Error(f"there is no importer {kind}{phrases.did_you_mean(kind, names)}")
    outputs = dict(outputs or {})
    runs_output = outputs.pop("runs", None)
    with contextlib.ExitStack() as stack:
        writers = {kind: stack.enter_context(_written(kind, outputs[kind])) for kind in outputs}
        job = _Import(
            checked(fields or {}), path_fields and PathPattern(path_fields), name, writers, kind
        )
        job.only = len(paths) == 1
        for found in finding.folders(paths, own_results.is_results):
            job.take(found)
            if say:
                say(f"{job.made.files} files, {len(job.made.rows)} runs")
        if runs_output:
            if not job.made.rows:
                raise Error(f"nothing was imported\n{job.made.summary()}")
            parquet_files.write(runs_output, job.made.rows, table_columns.RUNS)
    return job.made


def read_run(folder, kind="auto", fields=None):
    """The one run that the logs in a folder tell of.

    Args:
        folder: in which the files are; folders in it are not looked at.
        kind: an importer, where the run must have a log of that kind; auto: any.
        fields: columns of the runs table, as the run that was to be done has them.

    Returns:
        A Merged (dlbench/imports/merging.py), completed.

    Raises:
        Error: there is none, there are several, or it is another run by its logs.
    """
    job = _Import(checked(fields or {}), None, None, {}, None if kind == "auto" else kind)
    runs = []
    for found in finding.folders([folder], lambda below: False):
        if found[0].path.parent == Path(folder):
            runs += [(run, [s.kind for s in run]) for run, _ in job.runs_of(found)]
    runs = [run for run, kinds in runs if kind == "auto" or kind in kinds]
    if len(runs) != 1:
        reasons = [f"{name}: {why}" for name, why in job.made.left_out]
        what = "run" if kind == "auto" else f"run with a log of kind {kind}"
        raise Error("; ".join([f"{folder}: expected one {what}, found {len(runs)}", *reasons]))
    run = merged(runs[0])
    table_rows.complete(run, {"the run": job.fields}, str(folder))
    return run


@contextlib.contextmanager
def _written(kind, output):
    """Yield a function that appends tables to a file, which is whole afterwards."""
    schema = parquet_files.table([], run_columns.RUN_TABLES[kind]).schema
    with written_whole(output) as part, parquet_files.writer(part, schema) as parquet:
        yield lambda table: parquet.write_table(table.cast(schema)) if len(table) else None


class _Import:
    def __init__(self, fields, pattern, name, writers, kind=None):
        self.fields, self.pattern, self.name, self.writers = fields, pattern, name, writers
        self.kind = kind  # for files that several importers know, or none
        self.only = False  # whether one path alone was given
        self.made = Imports()
        self.logs = {}  # where a log was met first, by its SHA-256
        self.run_ids = {}  # SHA-256 of the logs of each run

    def take(self, found):
        """Import the files of one folder."""
        for run, digest in self.runs_of(found):
            try:
                self._finish(run, digest)
            except Error as error:
                if self.only and found[0].alone:
                    raise
                self._leave_out(run[0].path, error)

    def runs_of(self, found):
        """(Sources, digest) of each run that the files of one folder tell of."""
        sources, attached = {}, []  # lists of a file's runs by program and kind
        for file in found:
            if file.path.is_dir():
                self._take_results(file)
                continue
            self.made.files += 1
            made = self._read(file)
            if made is None:
                continue
            kind, runs = made
            module = plugins.load(finding.KIND, kind)
            if getattr(module, "ATTACHES", False):
                attached.append(runs)
            else:
                sources.setdefault(module.FAMILY, {}).setdefault(kind, []).append(runs)
        runs = [run for kinds in sources.values() for run in _put_together(kinds)]
        digests = [_digest([source.identity for source in run]) for run in runs]
        self._attach(runs, attached)
        return list(zip(runs, digests, strict=True))

    def _read(self, file):
        """(kind, Sources of the runs in a file), or None where there are none."""
        why_not = ""
        try:
            log, kind, why_not = finding.kind(file.path, self.kind, file.alone)
            if kind is None:
                if log and own_results.is_table(log):
                    self._take_table(file)
                    return None
                return self._leave_unknown(file, why_not)
            module = plugins.load(finding.KIND, kind)
            # Of two runs, what was beside each may well be the same.
            attaches = getattr(module, "ATTACHES", False)
            place = os.path.realpath(file.path.parent) if attaches else None
            if (log.sha256, place) in self.logs:
                why = f"the same log as {self.logs[log.sha256, place]}"
                self.made.left_out.append((file.name, why))
                return None
            runs = [
                Source(imported, kind, file.name, f"{log.sha256}:{number}")
                for number, imported in enumerate(_read(module, kind, log))
            ]
            if not runs:
                self.made.left_out.append((file.name, "no run of its own: of one beside it"))
                return None
            self.logs[log.sha256, place] = file.name
            return kind, runs
        except (Error, OSError) as error:
            if file.alone and self.only:
                raise
            if why_not and not file.alone:  # no log of the kind that is wanted
                return self._leave_unknown(file, why_not)
            self._leave_out(file.name, error, file.path)
            return None

    def _leave_unknown(self, file, why):
        if file.alone and self.only:
            raise LogError(f"{file.path}: {why}")
        self.made.left_out.append((file.name, why))
        if file.alone:
            self.made.unread.append(file.name)

    def _leave_out(self, name, error, path=""):
        """Name a log that cannot be read, without the path that the words begin with."""
        why = str(error).removeprefix(str(path or name)).lstrip(":, ")
        self.made.left_out.append((name, why))
        self.made.unread.append(name)

    def _attach(self, runs, attached):
        for source in (source for sources in attached for source in sources):
            if len(runs) == 1:
                runs[0].append(source)
            else:
                why = "no run" if not runs else f"{len(runs)} runs, it is unknown of which"
                self.made.left_out.append(
                    (source.path, f"{source.kind} is of a run; here is {why}")
                )

    def _finish(self, sources, digest):
        run = merged(sources)
        first = run.sources[0]
        if not _is_result(run):
            why = "says what was run, and no log of that folder what came out"
            self.made.left_out += [(source.path, why) for source in run.sources]
            return
        given = {BY_FIELDS: self.fields}
        if self.pattern:
            given[BY_PATH] = self.pattern.fields(first.path)
        table_rows.complete(run, given, first.place)
        run_id = f"{table_rows.run_words(run)}-{digest[:10]}"
        self.made.rows.append(table_rows.run_row(run, run_id, digest, self.name))
        for kind, make in (
            ("steps", table_rows.steps_table),
            ("evals", table_rows.evals_table),
            ("samples", table_rows.samples_table),
        ):
            if kind in self.writers:
                self.writers[kind](make(run, run_id))

    def _take_results(self, folder):
        for row, run_tables, why_not in own_results.of_folder(folder.path):
            self.made.files += 1
            try:
                if why_not:
                    raise Error(why_not)
                self._pass_through(row, folder, run_tables)
            except Error as error:
                self._leave_out(folder.name, error)

    def _take_table(self, file):
        for row in own_results.of_table(file.path):
            self._pass_through(row, file, {})

    def _pass_through(self, row, file, run_tables):
        """A row as it is, under another id where that is taken by another run."""
        row = {name: value for name, value in row.items() if value is not None}
        run_id = row["run_id"]
        digest = row.get("log_sha256") or _digest([run_id, repr(sorted(row.items()))])
        if self.run_ids.get(run_id, digest) != digest:
            run_id = f"{run_id}-{digest[:10]}"
        if run_id in self.run_ids or (digest, None) in self.logs:
            met = self.logs.get((digest, None), "one before")
            self.made.left_out.append(
                (f"{file.name}: {row['run_id']}", f"the same run as in {met}")
            )
            return
        self.run_ids[run_id] = digest
        self.logs[digest, None] = file.name
        for name, value in self.fields.items():
            if row.get(name, value) != value:
                raise Error(
                    f"{file.name}: {row['run_id']}: {name} is {value} by {BY_FIELDS}, "
                    f"{row[name]} by the table"
                )
        added = {"study": self.name, "source": file.name} | self.fields
        self.made.rows.append(added | row | {"run_id": run_id})
        for kind, table in run_tables.items():
            if kind in self.writers:
                self.writers[kind](table_rows.with_run_id(table, run_id))


def _read(module, kind, log):
    """The Imported of each run; also an importer that fails is about one log."""
    try:
        yield from module.read(log)
    except (Error, OSError):
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {error}"[:200]
        raise LogError(f"{log.path}: the importer {kind} failed: {words}") from error


def _put_together(kinds):
    """Lists of Sources, one a run, of the logs of one program in one folder.

    Args:
        kinds: for each kind of log the files of it, each a list of the Sources of its runs.
    """
    every = [source for files in kinds.values() for runs in files for source in runs]
    folders = [source.path.rpartition("/")[0].rpartition("/")[2] for source in every]
    if sorted(folders) == sorted(finding.PARTS):
        return [every]
    if any(len(files) > 1 for files in kinds.values()):
        sources = [source for files in kinds.values() for runs in files for source in runs]
        if len(kinds) > 1:
            for source in sources:
                source.imported.notes.append("which logs of its folder go with it is unknown")
        return [[source] for source in sources]
    files = [runs for (runs,) in kinds.values()]
    most = max(files, key=len, default=[])
    made = [[source] for source in most]
    for runs in files:
        if runs is most:
            continue
        if 0 < len(runs) < len(most):
            runs[-1].imported.notes.append(f"taken for the last of {len(most)} runs of this folder")
        # What a program writes over is of its last run.
        for source, sources in zip(reversed(runs), reversed(made), strict=False):
            sources.append(source)
    return [sorted(sources, key=lambda source: source.kind) for sources in made]


def _is_result(run):
    scores = any(row.keys() & set(table_rows.SCORES) for row in run.evals)
    known = {name for name, value in run.columns.items() if value is not None}
    return bool(len(run.steps) or known & MEASURED or scores or run.status != "ok")


def _digest(parts):
    """SHA-256 of a run from those of its logs with its numbers in them; of the only one its own."""
    if len(parts) == 1 and parts[0].endswith(":0"):
        return parts[0].removesuffix(":0")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def show_progress(words):
    """Say how far it is on stderr, on one line where that is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{words}", end="\x1b[K", file=sys.stderr, flush=True)
