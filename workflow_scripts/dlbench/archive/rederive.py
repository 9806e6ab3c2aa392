"""Derive the tables, figures and report of an archive again, and compare them byte for byte.

- The archive is verified, then unpacked without tables, figures and report, so a file that is
  there afterwards was derived here.
- Tables are derived from records, so each record is compared with its logs, which are parsed again.
- The archive's own programs run, as its workflow starts them; or this checkout's, if the archive's
  code is not trusted. These take keys that an older config lacks from DEFAULTS_SINCE. Nothing is
  trained or downloaded.
- Differing files are named, together with differing versions of Python and packages.

Needs the standard library only; the programs that it starts need the workflow's packages.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.archive import verify_archive
from dlbench.archive.verify_archive import Bag
from dlbench.common import tools
from dlbench.common.files import sha256
from dlbench.common.phrases import counted
from dlbench.log.event_fields import NUMBER, SUCCEEDED
from dlbench.records import run_record
from dlbench.study.runs import Run, labels
from dlbench.tables import cells

ABOUT, REPORT = "archive.json", "results/report.html"
RUN_TABLES = {f"{name}.parquet" for name in cells.OF_RUN}
PROGRAMS = Path("workflow_scripts")
LAST_LINES = 15
# Config keys that earlier versions did not have, with the values that give their behaviour.
DEFAULTS_SINCE: dict[str, Any] = {
    "imports": [],
    "references": [],
    "trainers": {},
    "dataset_folder": None,
    "data": {"text": {}, "images": {}},
    "wait_for_quiet_s": 0,
    "others_share": None,
    "sentinels": "none",
    "sentinels_are_repeats": False,
}


@dataclass(frozen=True)
class Outcome:
    """The result of deriving an archive's results again.

    Attributes:
        tables, run_tables, figures: numbers of files, identical or not.
        differing: names of files that differ, that were not derived again, or that the archive
            lacks.
        versions: (package, version in the archive, version here) where these differ.
        records: the comparison of records with their logs.
    """

    tables: int
    run_tables: int
    figures: int
    differing: list
    versions: list
    records: verify_archive.LogComparison


def rederive(bag: Bag, folder: str | Path, own_code: bool = False) -> Outcome:
    """Derive everything that follows from an archive's logs again, in a new folder.

    `bag`: an open bag; `own_code`: start this checkout's programs instead of the archive's. Raises
    Error: the archive has problems, a package is missing, or a program failed.
    """
    check_sound(bag)
    about = _read_about(bag)
    versions = _versions(about["made_with"])
    if missing := [name for name, _, installed in versions if installed is None]:
        raise Error(
            f"this Python has no {', '.join(missing)}: start it with "
            f"`{tools.uv_command('run')}` in a folder of dlbench, as the unpacked archive's is"
        )
    archived = {name for name in bag.payload if _is_derived(name, about)}
    verify_archive.unpack(bag, folder, lambda name: name not in archived)
    programs = Path(__file__).parents[2] if own_code else Path(folder).absolute() / PROGRAMS
    _run_programs(programs, Path(folder), about["figures"], DEFAULTS_SINCE if own_code else {})
    expected = {
        name: digest for name, digest in verify_archive.digests(bag).items() if name in archived
    }
    rederived = {
        path.relative_to(folder).as_posix()
        for path in Path(folder, "results").rglob("*")
        if path.is_file() and _is_derived(path.relative_to(folder).as_posix(), about)
    }
    return Outcome(
        tables=sum(name.startswith("results/tables/") for name in archived if ".parquet" in name),
        run_tables=sum(name.startswith("results/runs/") for name in archived),
        figures=len(about["figures"]),
        differing=sorted(
            name
            for name in rederived | archived
            if name not in rederived
            or name not in archived
            or sha256(Path(folder, name)) != expected[name]
        ),
        versions=versions,
        records=verify_archive.compare(bag),
    )


def check_sound(bag: Bag) -> None:
    """Check that an archive has no problems. Raises Error: it has; the message lists them."""
    if problems := verify_archive.problems(bag):
        raise Error("\n".join([f"{bag.path} is not sound:", *verify_archive.summarise(problems)]))


def training_plan(bag: Bag) -> Iterator[str]:
    """Yield a line for each run that repeating the study would train, the longest runs first."""
    todo, skipped = trainings(bag)
    for each in todo:
        seconds, status = each["duration_s"], each["status"]
        duration = f"{seconds:9.1f} s" if seconds is not None else "  unknown  "
        ended = "" if status in SUCCEEDED else f" ({status})"
        line = f"{duration}  {each['nodes']} x {each['devices_per_node']}  {each['label']}{ended}"
        yield verify_archive.printable(line)
    known = [e["nodes"] * e["duration_s"] for e in todo if e["duration_s"] is not None]
    yield (
        f"{counted(len(todo), 'run')} to train: {sum(known) / 3600:.3g} node-hours of training as "
        "they took there"
        + (f", {len(todo) - len(known)} unknown" if len(known) < len(todo) else "")
        + (f"; {skipped} were skipped" if skipped else "")
    )


def trainings(bag: Bag) -> tuple[list[dict[str, Any]], int]:
    """What repeating the study would train, the longest runs first, and how many were skipped."""
    costs = [_run_cost(bag, name) for name in bag.payload if verify_archive.RECORD.fullmatch(name)]
    # Sentinels repeat runs whenever a study is extended; a study from scratch needs none.
    todo = [entry for entry in costs if entry[1] != "skipped" and not entry[0].sentinel]
    names = labels([run for run, _, _ in todo])
    longest = sorted(todo, key=lambda entry: -(entry[2] or 0) * entry[0].nodes)
    planned = [
        {
            "run": run.id,
            "label": names[run.id],
            "nodes": run.nodes,
            "devices_per_node": run.devices_per_node,
            "status": status,
            "duration_s": seconds,
        }
        for run, status, seconds in longest
    ]
    return planned, sum(status == "skipped" for _, status, _ in costs)


def _run_cost(bag, name):
    """(Run, status, duration in seconds or None) of a record.

    Raises Error: this version cannot read the record.
    """
    record = run_record.parsed(bag.read(f"data/{name}", verify_archive.MAX_RECORD_BYTES), name)
    if reason := run_record.wrong(record["summary"], {"duration_s": NUMBER}, name):
        raise Error(reason)
    return Run.from_spec(record["spec"]), record["status"], record["summary"].get("duration_s")


def _read_about(bag):
    """The content of archive.json: figures, tables, and the versions that made them.

    Raises Error: the archive was not written by dlbench.
    """
    try:
        about = json.loads(bag.read(f"data/{ABOUT}"))
        figures, tables = ([str(name) for name in about[key]] for key in ("figures", "tables"))
        return {"figures": figures, "tables": tables, "made_with": dict(about["made_with"])}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Error(f"{bag.path}: {ABOUT}: expected one of our archives: {error!r}") from error


def _is_derived(name, about):
    """Whether a file of the archive is derived from other files in it."""
    if name == REPORT or name.startswith("results/figures/"):
        return True
    path = Path(name)
    if name.startswith("results/tables/"):
        return path.stem in about["tables"]
    return name.startswith("results/runs/") and path.name in RUN_TABLES and len(path.parts) == 4


def _run_programs(programs, folder, figures, defaults):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(defaults, file)  # which is YAML, too
        file.flush()
        files = ["--config", file.name, "config.yaml"] if defaults else []
        _run_program(programs, folder, "collect_runs.py", *files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda name: _run_program(programs, folder, "draw_figure.py", name), figures))
    # A program in archives from before there was the command.
    report = (
        ["build_report.py"] if (programs / "build_report.py").exists() else ["dlbench", "report"]
    )
    _run_program(programs, folder, *report, "--figures", *figures)


def _run_program(programs, folder, program, *arguments):
    command = [sys.executable, str(programs / program), *arguments]
    # Our values would make the archive's programs import our files.
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    finished = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if finished.returncode:
        last = "\n".join(finished.stdout.splitlines()[-LAST_LINES:])
        owner = "of the archive" if programs.is_relative_to(folder.absolute()) else "of ours"
        name = f"{program} {arguments[0]}" if program == "dlbench" else program
        raise Error(f"{name} {owner} failed:\n{last}")


def _versions(made_with):
    """(package, version in the archive, version here or None) where these differ."""
    differing = []
    for name, archived in sorted(made_with.items()):
        try:
            installed = platform.python_version() if name == "python" else metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = None
        if installed != archived:
            differing.append((name, archived, installed))
    return differing
