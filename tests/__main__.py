"""Set up what the tests need and run them, by the README's second command.

    uv run --group dev python -m tests [--ci | --all] [pytest's options]

- Without an option: tests/unit without what starts programs, one test on the real Snakefile, and
  the training loop. They need neither a compiler nor root.
- --ci: each other promise once, with Horovod, JAX, PyTorch, Slurm and containers.
- --all: everything else, by hand: each combination, other Pythons and versions of Snakemake,
  benchmarks, mutations, links to other servers.

tests/budget.toml has the suites of each level, with the CPU-minutes that each may take. What a
suite lacks on this machine (a scheduler, a compiler, root) stands at the end.
"""

import argparse
import collections
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import tomllib

from tests.support.machines import pythons

REPOSITORY = Path(__file__).parents[1]
TRAINER = REPOSITORY / "envs" / "train" / ".venv" / "bin" / "python"
COMMAND = "uv run --group dev python -m tests"
# Where files are in memory, on Linux. Tests make thousands of small ones, which on a disk takes a
# sixth of their time.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30
# How many processes are busy at once. Each waits now and then, for a disk or a process that it
# started, so that three leave two cores idle.
MAX_BUSY = 3.7


class Suite(NamedTuple):
    """A command, most often pytest with the tests of a folder.

    Attributes:
        busy: how many cores it keeps busy.
        trains: whether it needs the trainers' environments, which are made by then.
        large: whether its files are too many for memory, or its daemons cannot read them there.
    """

    name: str
    command: tuple
    busy: float = 1.0
    trains: bool = True
    large: bool = False


def tests(name, *paths, python=sys.executable, workers=1, idle=0.0, share="loadfile", **how):
    """A suite of pytest.

    Args:
        idle: the part of its time in which it waits for a scheduler, a disk or a lock.
        share: how pytest-xdist shares the tests among several workers.
    """
    beside = (f"-n{workers}", f"--dist={share}") if workers > 1 else ()
    command = (python, "-m", "pytest", *(paths or [f"tests/{name}"]), *beside, "--durations=10")
    return Suite(name, command, workers * (1 - idle), **how)


# It waits for downloads.
MAKE = (sys.executable, "-m", "tests.environments")
ENVIRONMENTS = Suite("environments", MAKE, 0.7, trains=False, large=True)
# Each starts once there is room for it: first those that wait much, then those that are busy.
SUITES = (
    tests("unit", workers=2, trains=False),
    tests("cluster", idle=0.8, large=True),
    tests("containers", idle=0.6, large=True),
    tests("workflow", workers=2, share="worksteal"),
    tests("frameworks"),
    tests("gpu"),
    tests("trainer", python=TRAINER),
    tests("benchmarks"),
    Suite("mutations", (sys.executable, "-m", "tests.mutations"), trains=False),
    Suite("links", (sys.executable, "-m", "tests.links"), 0.1, trains=False),
)


class Result(NamedTuple):
    """How a suite ended, and the CPU time of all that it started and waited for."""

    name: str
    code: int
    started_s: float
    real_s: float
    cpu_s: float
    counts: collections.Counter
    skipped: list


def main(arguments):
    level, options = parsed(arguments)
    # As where users are: without Python's caches each start of Snakemake costs three times as much.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Suites share the cores: PyTorch's threads that wait for one another would compute in vain.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    budget = tomllib.loads((REPOSITORY / "tests" / "budget.toml").read_text())["cpu_minutes"]
    slowness = max(1.0, loop_s() / budget["loop_s"])
    minutes = {name: each * slowness for name, each in budget[level].items()}
    started = time.monotonic()
    suites = [suite for suite in (*SUITES, *second_python(level)) if suite.name in minutes]
    make = ENVIRONMENTS._replace(command=(*MAKE, level))
    results = run([suites[0], make, *suites[1:]], [f"--level={level}", *options])
    print_results(results, minutes)
    faults = faults_of(results, suites, {} if options else minutes)
    print(summary(level, results, faults, (time.monotonic() - started) / 60), flush=True)
    sys.exit(1 if faults else 0)


def faults_of(results, suites, minutes):
    """What failed, did not run, or took more CPU-minutes than it may: {suite: minutes}."""
    missing = {suite.name for suite in suites} - {result.name for result in results}
    return [
        *(f"{result.name} failed" for result in results if result.code),
        *(f"{name} did not run, since its environment is missing" for name in sorted(missing)),
        *(
            f"{result.name} took {result.cpu_s / 60:.1f} of {minutes[result.name]:.1f} CPU-minutes "
            "in tests/budget.toml"
            for result in results
            if result.cpu_s / 60 > minutes.get(result.name, float("inf"))
        ),
    ]


def parsed(arguments):
    """(level, pytest's options)."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, usage="%(prog)s [--ci | --all] [pytest's options]", allow_abbrev=False
    )
    level = parser.add_mutually_exclusive_group()
    level.set_defaults(level="quick")
    for flag, name in (("--ci", "ci"), ("--all", "slow")):
        level.add_argument(flag, dest="level", action="store_const", const=name)
    found, options = parser.parse_known_args(arguments)
    return found.level, options


def loop_s():
    """CPU time of a short loop: how slow this machine's Python is."""
    times = []
    for _ in range(3):
        began = time.process_time()
        sum(i * i for i in range(2_000_000))
        times.append(time.process_time() - began)
    return min(times)


def second_python(level):
    """With --all: tests/unit under the newest Python of this machine, if it is another one."""
    ours, (newest, _) = f"{sys.version_info.major}.{sys.version_info.minor}", pythons.newest()
    if level != "slow" or newest in (None, ours):
        return []
    uv = os.environ.get("UV") or shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"
    python = pythons.workflow_python(newest, uv)
    return [tests("second python", "tests/unit", python=python, workers=2, trains=False)]


def run(suites, options):
    """Run all suites. Returns how each ended; one of pytest without tests (code 5) failed.

    The output of the first is printed at once, that of another once it has ended. Where the
    environments cannot be made, what needs them is not run.
    """
    waiting, running, results, began, made = list(suites), {}, [], time.monotonic(), False
    with tempfile.TemporaryDirectory() as folder, in_memory() as memory:
        try:
            while waiting or running:
                free = MAX_BUSY - sum(suite.busy for suite, *_ in running.values())
                ready = (suite for suite in waiting if made or not suite.trains)
                suite = next((suite for suite in ready if suite.busy <= free), None)
                if suite:
                    waiting.remove(suite)
                    place = Path(folder, suite.name)
                    log = place.with_suffix(".log") if suite is not suites[0] else None
                    process = start(suite, place, log, {} if suite.large else memory, options)
                    running[process.pid] = suite, process, place, log, time.monotonic()
                    continue
                pid, status, used = os.wait4(-1, 0)
                if pid not in running:
                    continue
                suite, process, place, log, started = running.pop(pid)
                process.returncode = code = os.waitstatus_to_exitcode(status)
                times = started - began, time.monotonic() - started, used.ru_utime + used.ru_stime
                results.append(Result(suite.name, code, *times, *counted(place)))
                if suite.name == ENVIRONMENTS.name:
                    made = code == 0
                    waiting = [suite for suite in waiting if made or not suite.trains]
                if log:
                    print(log.read_text(errors="replace"), flush=True)
        finally:  # after Ctrl-C, which they were sent as well
            for _, process, *_ in running.values():
                process.wait()
    return results


@contextlib.contextmanager
def in_memory():
    """The variables with which pytest has its folders in memory; none where that has no room."""
    room = shutil.disk_usage(MEMORY).free if os.access(MEMORY, os.W_OK) else 0
    if room < ROOM_BYTES:
        yield {}
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as root:
        yield {"PYTEST_DEBUG_TEMPROOT": root}


def start(suite, place, log, variables, options):
    """Start a suite; its output goes to the file `log`, or is printed."""
    command = suite.command
    if "pytest" in command:
        command = (*command, f"--junitxml={place}", *options)
    how = {"cwd": REPOSITORY, "env": os.environ | variables}
    if not log:
        return subprocess.Popen(command, **how)
    with open(log, "wb") as file:
        return subprocess.Popen(command, **how, stdout=file, stderr=file)


def counted(report):
    """How many tests of a pytest's XML report passed, failed and were skipped, and why the last."""
    counts, skipped = collections.Counter(), []
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            outcomes = {child.tag for child in case} & {"failure", "error", "skipped"}
            counts["failed" if outcomes - {"skipped"} else "skipped" if outcomes else "passed"] += 1
            skipped += [child.get("message", "") for child in case if child.tag == "skipped"]
    return counts, skipped


def print_results(results, minutes):
    """What each suite took, and what could not run here. CPU time of daemons is not counted."""
    columns = ("start", "real", "CPU", "budget", "passed", "failed", "skipped")
    print(f"{'minutes':14}" + "".join(f"{column:>8}" for column in columns))
    for result in (*results, total(results)):
        seconds = (result.started_s, result.real_s, result.cpu_s)
        row = [f"{each / 60:.1f}" for each in seconds]
        allowed = sum(minutes.values()) if result.name == "all" else minutes.get(result.name)
        row += [f"{allowed:.1f}" if allowed else ""]
        row += [str(result.counts[outcome]) for outcome in columns[4:]]
        print(f"{result.name:14}" + "".join(f"{each:>8}" for each in row))
    for result in results:
        for reason, count in collections.Counter(result.skipped).items():
            print(f"not run here: {count} of {result.name}: {reason}")


def total(results):
    counts = sum((result.counts for result in results), collections.Counter())
    end = max(result.started_s + result.real_s for result in results)
    return Result("all", 0, 0.0, end, sum(result.cpu_s for result in results), counts, [])


def summary(level, results, faults, real_minutes):
    """One line: what passed and failed, and how to run the rest."""
    rest = {
        "quick": f"the rest: {COMMAND} --ci, then --all",
        "ci": f"the rest: {COMMAND} --all",
        "slow": "the command alone and --ci run the other tests",
    }
    counts = total(results).counts
    outcome = ", ".join(f"{counts[each]} {each}" for each in ("passed", "failed", "skipped"))
    return "; ".join([f"{outcome} in {real_minutes:.1f} minutes", *faults, rest[level]])


if __name__ == "__main__":
    main(sys.argv[1:])
