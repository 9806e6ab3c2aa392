"""Processes that compute beside the runs of one node, also on a busy machine."""

import contextlib
import os
import signal
from pathlib import Path

BEFORE_ALL_ELSE = -15  # a niceness


def compute_beside(node, busy, done):
    """Let processes run while a run of a node is active, and stop them otherwise."""
    before = set()
    while not done.wait(0.1):
        nodes = set()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile
                arguments = (path / "cmdline").read_text().split("\0")
                if "--node" in arguments and arguments[1:2] == ["workflow_scripts/train.py"]:
                    nodes.add(arguments[arguments.index("--node") + 1])
                    if path.name not in before:
                        put_before_all_else(int(path.name))
                        before.add(path.name)
        for process in busy:
            process.send_signal(signal.SIGCONT if node in nodes else signal.SIGSTOP)


def put_before_all_else(pid):
    """Give a process, its future threads and its session a high priority."""
    os.setpriority(os.PRIO_PROCESS, pid, BEFORE_ALL_ELSE)
    group = Path(f"/proc/{pid}/autogroup")  # else each session would have an equal share
    if group.exists():
        group.write_text(str(BEFORE_ALL_ELSE))
