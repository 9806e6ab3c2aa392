"""What is wrong around the runs: disk, permissions, locks, processes, data and images.

Only processes of this machine are visible. On a shared file system a workflow may be running on
another machine, so nothing is repaired that it may use: the Problem says what to do.
"""

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from dlbench.campaign import snakemake_files
from dlbench.campaign.doctor_problem import ASIDE, Problem, put_all_aside, put_aside
from dlbench.common import files as common_files
from dlbench.data import verify_dataset
from dlbench.images import trainer_image
from dlbench.records import run_record, sessions

MIN_FREE_BYTES = 1 << 30
MIN_FREE_FILES = 1000
OLD_S = 3600.0  # a temporary folder that has not changed for so long has no owner
SHARED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|afs|9p|fuse|pvfs|glusterfs|panfs|wekafs")
PART = re.compile(r"\..+\.(\d+)\.part")  # of files.atomic_write
TRAINERS = ("start_run.py", "train.py", "train_external.py", "start_processes.py")


def problems(content: bool = False) -> Iterator[Problem]:
    """Yield the Problems around the runs; `content` as in `doctor.examine`."""
    yield from _disk(run_record.RESULTS)
    yield from _permissions(run_record.RESULTS)
    if not snakemake_files.workflows():
        yield from _locks()
        yield from _markers()
        yield from _orphans()
    yield from _problems_of_parts(run_record.RESULTS)
    yield from _data(content)
    yield from _images()


def _disk(results):
    file_system = os.statvfs(results)
    free = file_system.f_bavail * file_system.f_frsize
    if file_system.f_flag & os.ST_RDONLY or not os.access(results, os.W_OK | os.X_OK):
        yield Problem(
            "disk",
            str(results),
            "it cannot be written",
            "nothing can be trained here",
            "mount it for writing, or ask for permission; copies elsewhere can be read",
        )
    elif free < MIN_FREE_BYTES:
        yield Problem(
            "disk",
            str(results),
            f"{free >> 20} MiB are free",
            "a run whose log cannot be written fails",
            "make room, then start again: what was cut short is trained again",
        )
    elif file_system.f_files and file_system.f_favail < MIN_FREE_FILES:
        yield Problem(
            "disk",
            str(results),
            f"{file_system.f_favail} more files can be made",
            "a run whose log cannot be made fails",
            "remove files of others",
        )


def _permissions(results):
    """If the group may read (or write) the results folder, it must be able to everywhere in it."""
    wanted = results.stat().st_mode & (stat.S_IRGRP | stat.S_IWGRP)
    closed = []
    for root, folders, files in os.walk(results):
        folders[:] = [name for name in folders if name != ASIDE and not _is_tree(Path(root, name))]
        for name in [*folders, *files]:
            path = Path(root, name)
            with contextlib.suppress(OSError):
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode) and _lacking(mode, wanted):
                    closed.append((path, mode))
    if closed:
        example, _ = closed[0]
        yield Problem(
            "permissions",
            str(example),
            f"{len(closed)} files or folders shut out the group that may use {results}",
            "others of the group cannot read these results or go on with them",
            "--repair gives the group what it has of the results; see your umask",
            functools.partial(_open_up, closed, wanted),
        )


def _is_tree(path):
    """Whether a folder is an image's tree, whose permissions are left alone."""
    return path.parent.parent.name == "images" and path.parent.parent.parent == run_record.RESULTS


def _lacking(mode, wanted):
    """The permission bits that the group lacks; for files only those to read."""
    if stat.S_ISDIR(mode):
        needed = wanted | (stat.S_IXGRP if wanted & stat.S_IRGRP else 0)
    else:
        needed = wanted & stat.S_IRGRP if mode & stat.S_IRUSR else 0
    return needed & ~mode


def _open_up(closed, wanted):
    for path, mode in closed:
        path.chmod(stat.S_IMODE(mode) | _lacking(mode, wanted))


def _shared(path):
    """Whether a path is on a file system that other machines may also write."""
    here = os.path.realpath(path)
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape")
            inside = here == point or here.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return bool(SHARED.search(kind))


def _locks():
    """The Problem of Snakemake's lock by a workflow that is gone."""
    locks = snakemake_files.locks()
    if not locks:
        return
    shared = _shared(".")
    advice = (
        "if none is at work on another machine either: snakemake --unlock"
        if shared
        else "snakemake --unlock, or --repair"
    )
    yield Problem(
        "lock",
        str(snakemake_files.LOCKS),
        "locked, and no workflow is at work on this machine",
        "the next start is refused",
        advice,
        None if shared else functools.partial(put_all_aside, locks),
    )


def _markers():
    """Problems of files that Snakemake marked as incomplete."""
    for marker, name in snakemake_files.marks():
        path = Path(name or "")
        if not name or not path.exists():
            continue
        repair, action = "the next start makes it again", None
        if path.parent == sessions.FOLDER:  # each start has a session of its own
            repair = "no start will use it; --repair moves it aside"
            action = functools.partial(put_all_aside, [marker, path])
        if path.parent.parent == run_record.RESULTS / "runs":
            with contextlib.suppress(run_record.RecordError, OSError):
                run_record.check_files(path.parent, run_record.read(path.parent / "run.json"))
                repair = (
                    "the next start sees that its record is valid; --repair takes the mark away"
                )
                action = functools.partial(put_aside, marker)
        yield Problem(
            "incomplete",
            name,
            "marked as half written by a workflow that is gone",
            "Snakemake would not use it",
            repair,
            action,
        )


def _orphans():
    """Problems of trainers in this folder whose workflow is gone."""
    here = os.path.realpath(".")
    processes = {pid: others for pid, *others in snakemake_files.processes()}
    for pid, (command, cwd, parent) in sorted(processes.items()):
        program = next((Path(w).name for w in command[:4] if Path(w).name in TRAINERS), None)
        if cwd != here or not program:
            continue
        if parent in processes and processes[parent][1] == here and _program(processes[parent][0]):
            continue  # its parent is reported
        yield Problem(
            "process",
            f"process {pid}",
            f"{program} goes on without its workflow",
            "it uses the devices that others are timed on",
            f"kill {pid}",
        )


def _program(command):
    return any(Path(word).name in TRAINERS for word in command[:4])


def _problems_of_parts(results):
    """Problems of partial files that a killed write left."""
    for path in _partial_files(results):
        yield Problem(
            "left over",
            str(path),
            "part of a file whose writing was killed",
            "it takes room and is never read",
            "--repair moves it aside",
            functools.partial(put_aside, path),
        )


def _partial_files(results):
    for root, folders, files in os.walk(results):
        folders[:] = [name for name in folders if name != ASIDE and not _is_tree(Path(root, name))]
        for name in files:
            match = PART.fullmatch(name)
            if match and not psutil.pid_exists(int(match[1])):
                yield Path(root, name)
        for name in [n for n in folders if n.startswith(".") and n.endswith(".part")]:
            if time.time() - Path(root, name).lstat().st_mtime > OLD_S:
                folders.remove(name)
                yield Path(root, name)


def _data(content):
    for place in sorted((run_record.RESULTS / "data").glob("*")):
        manifest = place / "manifest.json"
        if not manifest.exists():
            continue
        problems = verify_dataset.verify(place, content)
        adopted = (common_files.read_json(manifest) or {}).get("folder")
        for problem in problems:
            where, _, what = problem.partition(": ")
            yield Problem(
                "data",
                where,
                what or problem,
                "training on it fails, or learns from other items than its manifest says",
                *_of_data(place, adopted, where),
            )


def _of_data(place, adopted, where):
    if adopted:
        return (f"restore the shards in {adopted}, or convert the dataset here (data.store)",)
    action = functools.partial(_remake_shard, place, where)
    return "the next start converts it again; --repair moves manifest and shard aside", action


def _remake_shard(place, where):
    """Move a shard and the manifest aside, so that the dataset is converted again."""
    for path in (Path(where), place / "manifest.json"):
        if path.is_file() and path.parent == place:
            put_aside(path)


def _images():
    """Problems of images, or their forms, whose files are missing."""
    for path in sorted((run_record.RESULTS / "images").glob("*/*.json")):
        content = common_files.read_json(path)
        key = "path" if path.name == "image.json" else "prepared"
        file = (content or {}).get(key)
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
            "snakemake images makes it again once --repair has moved this file aside",
            functools.partial(put_aside, path),
        )


def _is_path(file):
    """Whether a text is a path, and not the name of an image in an engine's store."""
    return os.path.isabs(file) or Path(file).is_relative_to(trainer_image.IMAGES)
