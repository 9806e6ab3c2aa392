"""Start and kill workflows, and find what they left behind."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

PATIENCE_S = 120


def processes(folder, program=""):
    """{pid: command line} of the Python processes in a folder, of one program or all."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().decode().split("\0")
            in_folder = os.readlink(f"/proc/{name}/cwd") == str(folder)
            # Not the shells around it.
            is_python = arguments[0].rpartition("/")[2].startswith("python")
            if in_folder and is_python and any(word.endswith(program) for word in arguments[1:4]):
                found[int(name)] = " ".join(arguments)
    return found


def wait_for(condition, message):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {message}"
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def started(campaign, *arguments):
    """A running workflow; at the end it is killed and all its processes have ended."""
    with open(campaign.folder / "said", "w") as said:
        workflow = subprocess.Popen(
            campaign.command(*arguments),
            cwd=campaign.folder,
            env=campaign.environment(),
            start_new_session=True,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield workflow
    finally:
        workflow.kill()
        workflow.wait()
        # Nobody else's: trainers end by themselves when their workflow is gone.
        wait_for(lambda: not processes(campaign.folder), "processes outlive their workflow")


def finished_files(campaign):
    """{path: content} of the logs and records of finished runs."""
    runs = campaign.folder / "results/runs"
    places = [path.parent for path in runs.glob("*/run.json")]
    return {p: p.read_bytes() for place in places for p in place.glob("*.json*")}
