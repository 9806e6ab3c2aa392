"""What is wrong with a results folder, why it matters, and what to do about it.

Nothing is changed here, so it may be done at any time, also while runs are trained. What is not
looked at:

- runs without a record: `dlbench status` says how they stand, and the next start goes on with them
- locks and marks of Snakemake and full disks, which the next start names itself, and files that it
  makes again by itself
- processes of other machines: on a shared file system a workflow may be at work there
"""

import contextlib
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench import Error
from dlbench.campaign import forget_runs
from dlbench.common import files as common_files
from dlbench.data import stores
from dlbench.images import trainer_image
from dlbench.log import event_fields, event_log
from dlbench.machine import gpus
from dlbench.plan import skipping
from dlbench.records import belief, run_record, sessions
from dlbench.study import trainer_environments
from dlbench.study.config import Study
from dlbench.study.runs import is_sentinel
from dlbench.tables import parquet_files
from dlbench.trainer.reading import manifest

SCHEMA_VERSION = 1
MAX_SHOWN = 3  # runs that are named where there are many
OLD_S = 3600.0  # a temporary folder that has not changed for so long has no owner
PART, PART_FOLDER = re.compile(r"\..+\.(\d+)\.part"), re.compile(r"\..*\.part")
TRAINERS = ("start_run.py", "train.py", "train_external.py", "start_processes.py")


@dataclass(frozen=True)
class Problem:
    """What is wrong, why that matters and what to do; `where` is a path, or a process."""

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


def examine(
    study: Study | None = None, content: bool = False, unknown: bool = False
) -> list[Problem]:
    """Look at the results in the current folder.

    Problems around the runs first, then those of runs.

    Args:
        study: the Study whose runs are examined; None: all runs in the results.
        content: also read shards, logs and records whole and compare their digests and numbers.
        unknown: also report runs that are not part of the study.
    """
    return [
        *_permissions(run_record.RESULTS),
        *_orphans(),
        *_parts(),
        *_data(content),
        *_images(),
        *_driver(study),
        *_tables(content),
        *of_runs(study, content, unknown),
    ]


def _permissions(results):
    """If the group may read (or write) the results folder, it must be able to everywhere in it."""
    wanted = results.stat().st_mode & (stat.S_IRGRP | stat.S_IWGRP)
    closed = []
    for root, folders, files in _walk():
        for path in (Path(root, name) for name in (*folders, *files)):
            with contextlib.suppress(OSError):
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode) and _lacking(mode, wanted):
                    closed.append(path)
    if closed:
        rights = "rwX" if wanted & stat.S_IWGRP else "rX"
        yield Problem(
            "permissions",
            str(closed[0]),
            f"{len(closed)} files or folders shut out the group that may use {results}",
            "others of the group cannot read these results or go on with them",
            f"find {results}/ -type d -path '{trainer_image.IMAGES}/*/*' -prune -o ! -type l "
            f"-exec chmod g+{rights} {{}} +; and see your umask",
        )


def _walk():
    """Yield as os.walk of the results, without the trees of images."""
    for root, folders, files in os.walk(run_record.RESULTS):
        if Path(root).parent == trainer_image.IMAGES:  # their permissions and names are their own
            folders.clear()
        yield root, folders, files


def _lacking(mode, wanted):
    """The permission bits that the group lacks; for files only those to read."""
    if stat.S_ISDIR(mode):
        needed = wanted | (stat.S_IXGRP if wanted & stat.S_IRGRP else 0)
    else:
        needed = wanted & stat.S_IRGRP if mode & stat.S_IRUSR else 0
    return needed & ~mode


def _orphans():
    """Problems of trainers in this folder whose workflow is gone."""
    if forget_runs.workflows():
        return
    here = os.path.realpath(".")
    found = {
        pid: (names[0], parent)
        for pid, command, folder, parent in forget_runs.processes()
        if folder == here
        and (names := [name for word in command[:4] if (name := Path(word).name) in TRAINERS])
    }
    for pid, (name, parent) in sorted(found.items()):
        if parent not in found:
            yield Problem(
                "process",
                f"process {pid}",
                f"{name} goes on without its workflow",
                "it uses the devices that others are timed on",
                f"kill {pid}",
            )


def _parts():
    """Problems of partial files and folders that a killed write left."""
    for root, folders, files in _walk():
        left = [n for n in files if (m := PART.fullmatch(n)) and not psutil.pid_exists(int(m[1]))]
        parts = [n for n in folders if PART_FOLDER.fullmatch(n)]
        left += [n for n in parts if time.time() - Path(root, n).lstat().st_mtime > OLD_S]
        folders[:] = [n for n in folders if n not in left]
        for name in left:
            yield Problem(
                "left over",
                str(Path(root, name)),
                "part of a file whose writing was killed",
                "it takes room and is never read",
                "remove it",
            )


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


def _images():
    """Problems of images, or their forms, whose files are missing."""
    for path in sorted(trainer_image.IMAGES.glob("*/*.json")):
        content = common_files.read_json(path)
        file = (content or {}).get("path" if path.name == "image.json" else "prepared")
        if content is None:
            what = "damaged"
        elif isinstance(file, str) and _is_path(file) and not os.path.exists(file):
            what = f"{file} is gone"
        else:
            continue
        yield Problem(
            "image",
            str(path),
            what,
            "runs in it cannot start",
            "remove this file: snakemake images makes it again",
        )


def _is_path(file):
    """Whether a text is a path, and not the name of an image in an engine's store."""
    return os.path.isabs(file) or Path(file).is_relative_to(trainer_image.IMAGES)


def _driver(study):
    """Problems of environments that need a newer driver than this machine's GPUs have.

    Of a study those of its runs, otherwise all that are installed. Where runs are jobs on other
    nodes, check_site.py asks those.
    """
    driver = gpus.installed_driver()
    if not driver or (study and skipping.devices(study.site).kind == "cpu"):
        return
    if study:
        environments = [run.environment for run in study.runs]
    else:
        every = trainer_environments.environments()
        environments = list(filter(trainer_environments.is_installed, every))
    for misfit in trainer_image.misfits(environments, driver):
        where = f"envs/{misfit.environment}"
        yield Problem("driver", where, misfit.reason, "its runs on GPUs fail", misfit.remedy)


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


def of_runs(
    study: Study | None = None, content: bool = False, unknown: bool = False
) -> Iterator[Problem]:
    """Yield the Problems of each run that has a record; arguments as in `examine`."""
    places = sorted(p for p in (run_record.RESULTS / "runs").glob("*") if p.is_dir())
    known = {place.name for place in places}
    if study:
        known = {run.id for run in study.runs} | sessions.sentinels_of(study.runs).keys()
    for place in places:
        if place.name in known and (place / "run.json").exists():
            yield from _of_run(place, content)
    others = [place.name for place in places if place.name not in known]
    if study and unknown and others:
        more = f" and {len(others) - MAX_SHOWN} more" if len(others) > MAX_SHOWN else ""
        yield Problem(
            "unknown runs",
            str(run_record.RESULTS / "runs"),
            f"{len(others)} of no run of the study {study.name!r}: "
            f"{', '.join(others[:MAX_SHOWN])}{more}",
            "no table or figure of it has them",
            "nothing if another study has them; move the others away",
        )


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
    if what := _describe_clock(log, content):
        yield Problem(
            "clock",
            str(log),
            what,
            "throughput and step times come from a clock that is never set; dates, start_s, "
            "import_s and costs are off",
            "set the clock (NTP); dlbench forget has the run trained again, with its dates",
        )


def _differs_from_log(record, log):
    """Names of the values in which a record differs from its log; "" if they agree."""
    try:
        return ", ".join(name for name, _, _ in belief.differences(record, log))
    except Error as error:
        return f"content ({error})"


def _describe_clock(log, content):
    """Which dates of a log cannot be: the clock was set during or before the run; "" if all can."""
    events = list(_dated_events(log, content))
    for before, after in itertools.pairwise(events):
        if after["t_utc"] < before["t_utc"]:
            return (
                f"{after['event']} is dated {after['t_utc']}, "
                f"{before['event']} before it {before['t_utc']}"
            )
    return ""


def _dated_events(log, content):
    """Yield the events with a date: of the head and end of a log; with `content` of all of it."""
    with contextlib.suppress(OSError, event_fields.LogError):
        for event in event_log.read(log):
            if not content and event["event"] in ("compile", "step"):
                if end := event_log.last_run_end(log):
                    yield end
                return
            if "t_utc" in event:
                yield event
