"""Set up what the tests need and run them all: `uv run python -m tests [pytest's options]`.

- tests/trainer needs TensorFlow and Horovod and runs in the trainer's
  environment; the other folders run in the workflow's. tests/frameworks starts each framework
  in its own.
- ROOMS of tests/unit run once more under the newest Python of this machine that the workflow
  supports, unless that is the one that runs the tests.
- tests/containers and tests/cluster need scripts that install container runtimes and start a
  Slurm, and skip with the reason without.
- Horovod is built from source, which takes minutes the first time and needs a
  C++ compiler and make; as root on Debian they are installed where missing.

At the end stands what each suite took: CPU time that is more than the real time of all, for each
core, is what keeps the whole from being faster; less says that cores had nothing to do.
"""

import os
import resource
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
# How many processes of pytest are busy at once. Each waits now and then, for a disk or a process
# that it started, so that three leave cores idle. Two cores are not enough for many more: tests
# that wait for a process would wait too long for it.
MOST_BUSY = 3.7


class Suite(NamedTuple):
    """Some tests that are run by one pytest.

    Attributes:
        tests: what pytest is told of them.
        python: of the environment that it runs in.
        workers: how many processes it has; its tests need neither all cores nor what there is
            once on a machine where it has more than one.
        idle: the part of its time in which it waits for a scheduler, a disk or a lock.
        share: how pytest-xdist shares the tests among several.
    """

    name: str
    tests: tuple[str, ...]
    python: Path = Path(sys.executable)
    workers: int = 1
    idle: float = 0.0
    share: str = "loadfile"

    @property
    def busy(self):
        return self.workers * (1 - self.idle)

    def command(self, options):
        beside = [f"-n{self.workers}", f"--dist={self.share}"] if self.workers > 1 else []
        return [self.python, "-m", "pytest", *self.tests, *beside, "--durations=10", *options]


# Files of tests/trainer that start many processes, each of which waits for the others.
PROCESSES = tuple(
    f"tests/trainer/test_{name}.py"
    for name in ("checkpoints", "copies", "parallel_training", "supervised_training")
)
# Those of tests/frameworks that are about PyTorch alone: about half of its time.
PYTORCH = tuple(f"tests/frameworks/test_{name}.py" for name in ("fsdp", "pytorch", "torch_models"))


# Of tests/unit, what finds most of what another Python may break, in a fifth of the time: what the
# workflow needs to plan, start and read runs, and the examples of all rooms. Drawing, statistics,
# reports and importers rest on packages that are tested for that Python by others.
ROOMS = tuple(
    f"tests/unit/{name}"
    for name in (
        *("baselines", "common", "images", "launchers", "log", "machine", "pages", "plan"),
        *("records", "schedulers", "study", "tables", "trainer", "house/test_examples.py"),
    )
)


def without(files):
    return tuple(f"--ignore={path}" for path in files)


# The first is seen at work: most faults are found there, and in minutes. Each begins once there
# is room for it. Those that wait much come early, beside those that do not; those that are always
# busy come last, so that no core is left without work. A machine has one Slurm: containers need it
# once cluster is done.
SUITES = (
    Suite("unit", ("tests/unit",), workers=2),
    Suite("cluster", ("tests/cluster",), idle=0.8),
    Suite("containers", ("tests/containers",), idle=0.6),
    Suite("workflow", ("tests/workflow",), workers=2, share="worksteal"),
    Suite("frameworks", ("tests/frameworks", *without(PYTORCH))),
    Suite("processes", PROCESSES, python=TRAINER),
    Suite("pytorch", PYTORCH),
    Suite("trainer", ("tests/trainer", *without(PROCESSES)), python=TRAINER),
    Suite("performance", ("tests/performance",)),
)


class Ended(NamedTuple):
    """How a suite ended, and what it took: CPU time of all that it started and waited for."""

    name: str
    code: int
    real_s: float
    user_s: float
    system_s: float


def main(options):
    # As where users are: without Python's caches each start of Snakemake costs three times as much.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    install_compiler()
    call(
        sys.executable,
        "workflow_scripts/make_environment.py",
        "envs/train",
        "--extra",
        "horovod",
        "--group",
        "test",
    )
    for environment, *extra in (
        ("envs/train-latest",),
        ("envs/jax", "--extra", "grain"),
        ("envs/pytorch", "--extra", "grain"),
    ):
        make = (sys.executable, "workflow_scripts/make_environment.py", environment)
        call(*make, *extra, "--group", "test")
    suites = [*SUITES, *on_newest_python()]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    set_up = Ended("set-up", 0, time.monotonic() - began, used.ru_utime, used.ru_stime)
    ended = run(suites, options)
    print_times([set_up, *ended], time.monotonic() - began)
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


def on_newest_python():
    """A list with the suite of the newest Python, whose environment is made; [] without one."""
    version, _ = pythons.newest()
    if version in (None, f"{sys.version_info.major}.{sys.version_info.minor}"):
        print("no suite of another Python: the newest that is found is the one that runs the tests")
        return []
    uv = os.environ.get("UV") or shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"
    return [Suite(f"python {version}", ROOMS, python=pythons.workflow_python(version, uv))]


def run(suites, options):
    """Run all suites. Returns how each ended; one without tests (code 5) failed.

    What the first one prints is seen at once, what another prints once it has ended.
    """
    waiting, at_work, ended = list(suites), {}, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or at_work:
                free = MOST_BUSY - sum(suite.busy for suite, *_ in at_work.values())
                suite = next((suite for suite in waiting if suite.busy <= free), None)
                if suite:
                    waiting.remove(suite)
                    said = Path(folder, suite.name) if suite is not suites[0] else None
                    process = start(suite.command(options), said)
                    at_work[process.pid] = suite, process, said, time.monotonic()
                else:
                    pid, status, used = os.wait4(-1, 0)
                    suite, process, said, began = at_work.pop(pid)
                    process.returncode = code = os.waitstatus_to_exitcode(status)
                    took = time.monotonic() - began, used.ru_utime, used.ru_stime
                    ended.append(Ended(suite.name, code, *took))
                    if said:
                        print(said.read_text(errors="replace"), flush=True)
        finally:  # after Ctrl-C, which they were sent as well
            for _, process, *_ in at_work.values():
                process.wait()
    return ended


def start(command, said):
    """Start a command; what it prints goes to the file `said`, or is seen."""
    if not said:
        return subprocess.Popen(command, cwd=REPOSITORY)
    with open(said, "wb") as file:
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=file, stderr=file)


def print_times(ended, real_s):
    """What each suite took. Daemons are not counted, nor what engines run in containers."""
    print(f"{'minutes':12}{'real':>8}{'user':>8}{'system':>8}")
    user_s, system_s = (sum(times) for times in zip(*(suite[3:] for suite in ended), strict=True))
    for suite in (*ended, Ended("all", 0, real_s, user_s, system_s)):
        print(f"{suite.name:12}" + "".join(f"{seconds / 60:8.1f}" for seconds in suite[2:]))
    sys.stdout.flush()


def call(*command):
    subprocess.run(command, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
