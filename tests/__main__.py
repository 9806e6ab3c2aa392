"""Set up what the tests need and run them all, by the README's second command.

    uv run --group dev python -m tests [pytest's options]

- tests/trainer needs TensorFlow and Horovod and runs in the trainer's
  environment; the other folders run in the workflow's. tests/frameworks starts each framework
  in its own.
- With --slow, tests/unit runs under the newest Python of this machine that the workflow supports,
  too, if that is not the one that runs the tests.
- tests/containers and tests/cluster need scripts that install container runtimes and start a
  Slurm, and skip with the reason without.
- Horovod is built from source, which takes minutes the first time and needs a
  C++ compiler and make; as root on Debian they are installed where missing. tests/unit needs none
  of the trainers' environments and runs meanwhile.

At the end stands when each suite began and what it took: CPU time that is more than the real time
of all, for each core, is what keeps the whole from being faster; less says that cores had nothing
to do.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.machines import pythons

REPOSITORY = Path(__file__).parents[1]
TRAINER = REPOSITORY / "envs" / "train" / ".venv" / "bin" / "python"
# Where files are in memory, on Linux. Tests make thousands of small ones, which on a disk takes a
# sixth of their time.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30
# How many processes of pytest are busy at once. Each waits now and then, for a disk or a process
# that it started, so that three leave cores idle. Two cores are not enough for many more: tests
# that wait for a process would wait too long for it.
MAX_BUSY = 3.7


class Suite(NamedTuple):
    """Some tests that are run by one pytest, or what makes the environments of the others.

    Attributes:
        tests: what pytest is told of them; none: the environments are made.
        python: of the environment that it runs in.
        workers: how many processes it has; its tests need neither all cores nor what there is
            once on a machine where it has more than one.
        idle: the part of its time in which it waits for a scheduler, a disk or a lock.
        share: how pytest-xdist shares the tests among several.
        trains: whether it needs the trainers' environments, which are made by then.
        large: whether its files are too many for memory, or its daemons do not see them there.
    """

    name: str
    tests: tuple[str, ...]
    python: Path = Path(sys.executable)
    workers: int = 1
    idle: float = 0.0
    share: str = "loadfile"
    trains: bool = True
    large: bool = False

    @property
    def busy(self):
        return self.workers * (1 - self.idle)

    def command(self, options):
        if not self.tests:
            return [self.python, "-m", "tests.environments"]
        beside = [f"-n{self.workers}", f"--dist={self.share}"] if self.workers > 1 else []
        return [self.python, "-m", "pytest", *self.tests, *beside, "--durations=10", *options]


# Files of tests/trainer that start many processes, each of which waits for the others.
PROCESSES = tuple(
    f"tests/trainer/test_{name}.py"
    for name in ("checkpoints", "copies", "parallel_training", "supervised_training")
)
# Those of tests/frameworks that are about PyTorch alone: about half of its time.
PYTORCH = tuple(
    f"tests/frameworks/test_{name}.py"
    for name in ("fsdp", "host_to_device", "pytorch", "torch_models")
)


def without(files):
    return tuple(f"--ignore={path}" for path in files)


# What makes the environments of the others. It waits for downloads, and for a compiler.
ENVIRONMENTS = Suite("environments", (), idle=0.3, trains=False, large=True)
# After those of tests/unit (unit_suites). Each begins once there is room for it. Those that wait
# much come early, beside those that do not. Those that are always busy come last, and at the end
# those of several processes: no core is left without work. A machine has one Slurm: containers need
# it once cluster is done.
SUITES = (
    Suite("cluster", ("tests/cluster",), idle=0.8, large=True),
    Suite("containers", ("tests/containers",), idle=0.6, large=True),
    Suite("workflow", ("tests/workflow",), workers=2, share="worksteal"),
    Suite("frameworks", ("tests/frameworks", *without(PYTORCH))),
    Suite("pytorch", PYTORCH),
    Suite("gpu", ("tests/gpu",)),
    Suite("trainer", ("tests/trainer", *without(PROCESSES)), python=TRAINER),
    Suite("performance", ("tests/performance",)),
    Suite("processes", PROCESSES, python=TRAINER),
)


class Ended(NamedTuple):
    """How a suite ended, and what it took: CPU time of all that it started and waited for."""

    name: str
    code: int
    began_s: float
    real_s: float
    user_s: float
    system_s: float


def main(options):
    # As where users are: without Python's caches each start of Snakemake costs three times as much.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Suites share the cores: PyTorch's threads that wait for one another would compute in vain, and
    # took half of its tests' time.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    began = time.monotonic()
    install_compiler()
    ended = run([*unit_suites("--slow" in options), ENVIRONMENTS, *SUITES], options)
    print_times(ended, time.monotonic() - began)
    if failed := [suite.name for suite in ended if suite.code]:
        sys.exit(f"failed: {', '.join(failed)}")


def install_compiler():
    missing = [tool for tool in ("g++", "make") if not shutil.which(tool)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"missing: {', '.join(missing)}; install a C++ compiler and make, then try again")
    call("apt-get", "update", "-qq")
    call("apt-get", "install", "-y", "-qq", "--no-install-recommends", "g++", "make")


def unit_suites(slow):
    """Those of tests/unit. One for another Python has its environment made here.

    The first is seen at work: most faults are found there, and in minutes.
    """
    ours, (newest, _) = f"{sys.version_info.major}.{sys.version_info.minor}", pythons.newest()
    unit = Suite("unit", ("tests/unit",), workers=2, trains=False)
    if not slow or newest in (None, ours):
        return [unit]
    uv = os.environ.get("UV") or shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"
    print(f"tests/unit runs under Python {ours} and {newest}", flush=True)
    python = pythons.workflow_python(newest, uv)
    return [unit, unit._replace(name=f"unit {newest}", python=python)]


def run(suites, options):
    """Run all suites. Returns how each ended; one without tests (code 5) failed.

    What the first one prints is seen at once, what another prints once it has ended. Where the
    environments cannot be made, what needs them is not run.
    """
    waiting, at_work, ended, begin, made = list(suites), {}, [], time.monotonic(), False
    with tempfile.TemporaryDirectory() as folder, in_memory() as memory:
        try:
            while waiting or at_work:
                free = MAX_BUSY - sum(suite.busy for suite, *_ in at_work.values())
                ready = (suite for suite in waiting if made or not suite.trains)
                suite = next((suite for suite in ready if suite.busy <= free), None)
                if suite:
                    waiting.remove(suite)
                    said = Path(folder, suite.name) if suite is not suites[0] else None
                    process = start(suite.command(options), said, {} if suite.large else memory)
                    at_work[process.pid] = suite, process, said, time.monotonic()
                else:
                    pid, status, used = os.wait4(-1, 0)
                    suite, process, said, began = at_work.pop(pid)
                    process.returncode = code = os.waitstatus_to_exitcode(status)
                    took = time.monotonic() - began, used.ru_utime, used.ru_stime
                    ended.append(Ended(suite.name, code, began - begin, *took))
                    if suite is ENVIRONMENTS:
                        made = code == 0
                        waiting = [suite for suite in waiting if made or not suite.trains]
                    if said:
                        print(said.read_text(errors="replace"), flush=True)
        finally:  # after Ctrl-C, which they were sent as well
            for _, process, *_ in at_work.values():
                process.wait()
    return ended


@contextlib.contextmanager
def in_memory():
    """The variables with which pytest has its folders in memory; none where that has no room."""
    room = shutil.disk_usage(MEMORY).free if os.access(MEMORY, os.W_OK) else 0
    if room < ROOM_BYTES:
        yield {}
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as root:
        yield {"PYTEST_DEBUG_TEMPROOT": root}


def start(command, said, variables):
    """Start a command; what it prints goes to the file `said`, or is seen."""
    how = {"cwd": REPOSITORY, "env": os.environ | variables}
    if not said:
        return subprocess.Popen(command, **how)
    with open(said, "wb") as file:
        return subprocess.Popen(command, **how, stdout=file, stderr=file)


def print_times(ended, real_s):
    """What each suite took. Daemons are not counted, nor what engines run in containers."""
    print(f"{'minutes':12}{'began':>8}{'real':>8}{'user':>8}{'system':>8}")
    user_s, system_s = (sum(times) for times in zip(*(suite[4:] for suite in ended), strict=True))
    for suite in (*ended, Ended("all", 0, 0.0, real_s, user_s, system_s)):
        print(f"{suite.name:12}" + "".join(f"{seconds / 60:8.1f}" for seconds in suite[2:]))
    sys.stdout.flush()


def call(*command):
    subprocess.run(command, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
