"""What is damaged in a results folder, why it matters, and what to do about it.

Records and logs of runs, shards of datasets, and tables are held against their digests. Nothing is
changed here, so it may be done at any time, also while runs are trained. Runs without a record are
not looked at: `dlbench status` says how they stand, and the next start goes on with them.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.common import files as common_files
from dlbench.data import stores
from dlbench.records import parse_run, run_record, sessions
from dlbench.study.config import Study
from dlbench.study.runs import is_sentinel
from dlbench.tables import parquet_files
from dlbench.trainer.reading import manifest

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Problem:
    """What is wrong, why that matters and what to do; `where` is a path."""

    kind: str
    where: str
    what: str
    why: str
    advice: str

    def line(self) -> str:
        """One line for people; control characters of file names and logs are escaped."""
        text = f"{self.kind}: {self.where}: {self.what}; {self.why}; to do: {self.advice}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def enter_workflow_folder(folder: str | Path) -> Path:
    """Make the folder of a workflow, given it or its results, the current one and return it.

    Raises Error: the folder has no results of dlbench.
    """
    folder = Path(os.path.abspath(folder))
    for place in (folder, folder.parent):
        results = place / run_record.RESULTS
        ours = any((results / name).is_dir() for name in ("runs", "data", "images", "environments"))
        if ours and (place == folder or folder.name == run_record.RESULTS.name):
            os.chdir(place)
            return place
    raise Error(
        f"{folder}: no results of dlbench: expected a folder with {run_record.RESULTS}/runs"
    )


def examine(study: Study | None = None, content: bool = False) -> list[Problem]:
    """The Problems of the results in the current folder, those of runs last.

    Args:
        study: the Study whose runs are examined; None: all runs in the results.
        content: also read shards, logs and records whole and compare their digests and numbers.
    """
    return [*_data(content), *_tables(content), *of_runs(study, content)]


def _data(content):
    for place in sorted((run_record.RESULTS / "data").glob("*")):
        path = place / manifest.NAME
        if not path.exists():
            continue
        adopted = (common_files.read_json(path) or {}).get("folder")
        advice = f"remove {path}: the next start converts the dataset again"
        if adopted:
            advice = f"restore the shards in {adopted}, or convert the dataset here (data.store)"
        for problem in stores.verify(place, content):
            where, _, what = problem.partition(": ")
            yield Problem(
                "data",
                where,
                what or problem,
                "training on it fails, or learns from other items than its manifest says",
                advice,
            )


def _tables(content):
    """Problems of damaged tables; of those of imports and runs, which may be long, with content."""
    long = ("imports/*/*.parquet", "runs/*/*.parquet") if content else ()
    for path in (
        path
        for pattern in ("tables/*.parquet", *long)
        for path in sorted(run_record.RESULTS.glob(pattern))
    ):
        try:
            parquet_files.check(path)
        except parquet_files.TableError as error:
            what, _, advice = str(error).removeprefix(str(path)).lstrip(": ").rpartition("; ")
            why = "dlbench does not read it; others may read other numbers"
            yield Problem("table", str(path), what, why, advice)


def of_runs(study: Study | None = None, content: bool = False) -> Iterator[Problem]:
    """Yield the Problems of each run that has a record; arguments as in `examine`."""
    runs = study.runs if study else ()
    known = {run.id for run in runs} | sessions.sentinels_of(runs).keys()
    for record in sorted((run_record.RESULTS / "runs").glob("*/run.json")):
        if study is None or record.parent.name in known:
            yield from _of_run(record.parent, content)


def _of_run(place, content):
    path, log = place / "run.json", place / "train.jsonl"
    advice = "the next start reads its log again or, if that is damaged too, trains it again"
    try:
        record = run_record.read_whole(place, place.name)
        # Starts compare sizes only.
        advice = f"dlbench forget {place.name}, then the next start trains it again"
        run_record.check_files(place, record, content)
    except (run_record.RecordError, OSError) as error:
        kind, why = "run", "its numbers are not used, or cannot be trusted"
        if isinstance(error, run_record.NewerVersion):
            advice = "update dlbench to at least the version that made it"
        elif is_sentinel(place.name):
            kind, why = "sentinel", "it is left out of the tables, and of the drift"
            advice = "no start trains it again: remove its folder"
        yield Problem(kind, str(place), str(error).replace(f"{place}/", ""), why, advice)
        return
    # The log of a record by another version is read again anyway.
    same_version = record["parser_version"] == run_record.PARSER_VERSION
    if content and same_version and (differs := _differs_from_log(record, log)):
        yield Problem(
            "record",
            str(path),
            f"its {differs} is not what its log says",
            "somebody edited it, and the next start would accept it",
            "remove it: the next start reads the log again",
        )


def _differs_from_log(record, log):
    """Names of the values in which a record differs from its log; "" if they agree."""
    try:
        return ", ".join(name for name, _, _ in parse_run.differences(record, log))
    except Error as error:
        return f"content ({error})"
