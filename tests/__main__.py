"""Set up what the tests need and run them all: `uv run python -m tests [pytest's options]`.

- tests/trainer needs TensorFlow and Horovod and runs in the trainer's
  environment; the other folders run in the workflow's.
- tests/containers and tests/cluster need scripts that install container runtimes and start a
  Slurm, and skip with the reason without.
- Horovod is built from source, which takes minutes the first time and needs a
  C++ compiler and make; as root on Debian they are installed where missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TRAINER = REPOSITORY / "envs" / "train"
SUITES = ("unit", "trainer", "workflow", "containers", "cluster")  # the fast ones first
# Their tests need neither all cores nor what there is once on a machine.
SIDE_BY_SIDE = {"unit": ["-n2", "--dist=loadfile"], "workflow": ["-n2"]}


def main(options):
    install_compiler()
    call(
        sys.executable, "workflow_scripts/make_environment.py", "envs/train",
        "--extra", "horovod", "--group", "test",
    )  # fmt: skip
    failed = [suite for suite in SUITES if run_suite(suite, options)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def install_compiler():
    missing = [tool for tool in ("g++", "make") if not shutil.which(tool)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"missing: {', '.join(missing)}; install a C++ compiler and make, then try again")
    call("apt-get", "update", "-qq")
    call("apt-get", "install", "-y", "-qq", "--no-install-recommends", "g++", "make")


def run_suite(suite, options):
    """Returns whether the suite failed; one without tests (pytest's exit code 5) has."""
    python = TRAINER / ".venv" / "bin" / "python" if suite == "trainer" else sys.executable
    options = [*SIDE_BY_SIDE.get(suite, ()), "--durations=10", *options]
    return call(python, "-m", "pytest", f"tests/{suite}", *options, check=False)


def call(*command, check=True):
    return subprocess.run(command, cwd=REPOSITORY, check=check).returncode


if __name__ == "__main__":
    main(sys.argv[1:])
