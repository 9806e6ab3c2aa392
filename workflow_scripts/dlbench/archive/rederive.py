"""From an archive alone: all its tables, figures and its report again, compared byte for byte.

- The archive is checked, then unpacked without them; what is made again cannot be what was there.
- Tables are made from records, so each record is compared with its logs, which are read anew.
- The programs are those of the archive, started as its workflow starts them, or our own where its
  code is not to be trusted: they take what its config does not say yet from LATER. Nothing is
  trained and nothing is fetched.
- What differs is named, with what else differs here: the versions of Python and packages.

Needs the standard library only; the programs need what tables and figures are made with.
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

from dlbench import Error
from dlbench.archive import archive_logs, verify_archive
from dlbench.archive.verify_archive import Bag
from dlbench.common import tools
from dlbench.common.files import sha256
from dlbench.log.event_fields import ENDED_WELL
from dlbench.study.runs import Run, labels
from dlbench.tables import table_names

ABOUT, REPORT = "archive.json", "results/report.html"
RUN_TABLES = {f"{name}.parquet" for name in table_names.OF_RUN}
PROGRAMS = Path("workflow_scripts")
LAST_LINES = 15
# What a config of an earlier version does not say, as it was before it could be said.
DEFAULTS_SINCE = {
    "imports": [],
    "references": [],
    "trainers": {},
    "data": {"text": {}},
    "wait_for_quiet_s": 0,
    "others_share": None,
    "sentinels": "none",
    "sentinels_are_repeats": False,
}


@dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        tables, run_tables, figures: how many there are, identical or not.
        differing: names of files that came out otherwise, or not at all, or were not there.
        versions: (name, in the archive, here) of what differs.
        records: what the records say beside what their logs do.
    """

    tables: int
    run_tables: int
    figures: int
    differing: list
    versions: list
    records: archive_logs.LogComparison


def rederive(bag: Bag, folder: str | Path, own_code: bool = False) -> Outcome:
    """Make everything that the archive's logs give again, in a new folder.

    Args:
        bag: an open one.
        own_code: have our programs do it instead of those in the archive.

    Raises:
        Error: the archive is not sound, a package is missing, or a program failed.
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
        records=archive_logs.compare(bag),
    )


def check_sound(bag: Bag) -> None:
    """Raises Error with every problem of an archive."""
    if problems := verify_archive.problems(bag):
        raise Error("\n".join([f"{bag.path} is not sound:", *verify_archive.summarise(problems)]))


def training_plan(bag: Bag) -> Iterator[str]:
    """Lines that say what would be trained to repeat a study, the longest runs first."""
    costs = [_run_cost(bag, name) for name in bag.payload if verify_archive.RECORD.fullmatch(name)]
    # Sentinels were trained for what was added later.
    todo = [entry for entry in costs if entry[1] != "skipped" and not entry[0].sentinel]
    names = labels([run for run, _, _ in todo])
    for run, status, seconds in sorted(todo, key=lambda entry: -(entry[2] or 0) * entry[0].nodes):
        duration = f"{seconds:9.1f} s" if seconds is not None else "  unknown  "
        ended = "" if status in ENDED_WELL else f" ({status})"
        line = f"{duration}  {run.nodes} x {run.devices_per_node}  {names[run.id]}{ended}"
        yield verify_archive.printable(line)
    known = [run.nodes * seconds for run, _, seconds in todo if seconds is not None]
    skipped = sum(status == "skipped" for _, status, _ in costs)
    yield (
        f"{len(todo)} runs to train: {sum(known) / 3600:.3g} node-hours of training as they took "
        "there"
        + (f", {len(todo) - len(known)} unknown" if len(known) < len(todo) else "")
        + (f"; {skipped} were skipped" if skipped else "")
    )


def _run_cost(bag, name):
    """(Run, how it ended, seconds it took or None) of a record.

    Raises:
        Error: it is not one that we know how to read.
    """
    record = json.loads(bag.read(f"data/{name}", verify_archive.MOST_RECORD_BYTES))
    try:
        run, seconds = Run(**record["spec"]), record["summary"].get("duration_s")
        numbers = (run.nodes, run.devices_per_node, run.repeat, seconds or 0)
        if not all(isinstance(number, int | float) for number in numbers):
            raise TypeError(f"expected numbers, found {numbers}")
        return run, str(record["status"]), seconds
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Error(f"{name}: not a record of this version of dlbench: {error!r}") from error


def _read_about(bag):
    """What an archive says of how it was made.

    Raises:
        Error: it is none of ours.
    """
    try:
        about = json.loads(bag.read(f"data/{ABOUT}"))
        figures, tables = ([str(name) for name in about[key]] for key in ("figures", "tables"))
        return {"figures": figures, "tables": tables, "made_with": dict(about["made_with"])}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Error(f"{bag.path}: {ABOUT}: expected one of our archives: {error!r}") from error


def _is_derived(name, about):
    """Whether a file of the archive comes from others in it."""
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
    _run_program(programs, folder, "build_report.py", "--figures", *figures)


def _run_program(programs, folder, program, *arguments):
    command = [sys.executable, str(programs / program), *arguments]
    # Of both, what is meant for us would lead the archive's programs to our files.
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
        raise Error(f"{program} {owner} failed:\n{last}")


def _versions(made_with):
    """(name, there, here) where they differ; here is None where it is missing."""
    differing = []
    for name, archived in sorted(made_with.items()):
        try:
            installed = platform.python_version() if name == "python" else metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = None
        if installed != archived:
            differing.append((name, archived, installed))
    return differing
