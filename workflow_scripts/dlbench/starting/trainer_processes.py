"""Start a trainer whose processes end with this one, and end all of its processes."""

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from dlbench.common import orphans
from dlbench.starting import leftovers

GRACE_S = 5.0  # between SIGTERM and SIGKILL
POLL_S = 0.02


def start(command: Sequence[str], log: Path, messages: Path) -> subprocess.Popen[bytes]:
    """Start a trainer in a session of its own.

    Args:
        log: of the run; it goes into the environment of the trainer's processes.
        messages: the file to which the trainer's output is appended.
    """
    with open(messages, "ab") as file:
        return subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=functools.partial(orphans.end_with_parent, os.getpid()),
            env=os.environ | leftovers.mark(log),
        )


def end(trainer: subprocess.Popen[bytes], log: Path) -> None:
    """End the trainer and every process that it started.

    mpirun gives each rank its own process group, horovodrun its own session, and both may end
    before their ranks. Programs of others may start processes that outlive them.
    """
    known = _remaining_processes(trainer, log)
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(OSError):
            os.killpg(trainer.pid, number)
        if number == signal.SIGKILL or trainer.poll() is not None:  # no parent forwards it
            for pid, _ in _remaining_processes(trainer, log, known):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            known = _remaining_processes(trainer, log, known)
            if trainer.poll() is not None and not known:
                return
            time.sleep(POLL_S)
    trainer.wait()


def killed_for_memory() -> int:
    """How many processes of this control group the OOM killer has killed; 0 if unknown."""
    try:
        group = Path("/proc/self/cgroup").read_text().rsplit(":", 1)[1].strip()
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text().split()
        return int(events[events.index("oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return 0


def _remaining_processes(trainer, log, known=frozenset()):
    """The processes of the trainer's session and those that are marked with its log; Linux only.

    Args:
        known: an earlier result. A process that is being ended loses its command line some time
            before it is gone.

    Returns:
        A set of (process id, start in ticks since the boot); ids may be used again.
    """
    remaining, marked = set(), leftovers.mark(log)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
            fields = (path / "stat").read_text().rpartition(")")[2].split()  # from the third on
            state, session, started = fields[0], int(fields[3]), fields[19]
            process = (int(path.name), started)
            if state not in "ZX" and (
                process in known
                or session == trainer.pid
                or _trains(path, log)
                or leftovers.is_of_run(path, marked)
            ):
                remaining.add(process)
    return remaining


def _trains(path, log):
    arguments = os.fsdecode((path / "cmdline").read_bytes()).split("\0")
    programs = {word.rpartition("/")[2] for word in arguments}
    # Supervisors have the trainer's command in their own command line.
    if not {"train.py", "--log"} <= programs or "start_run.py" in programs:
        return False
    return (
        Path(os.readlink(path / "cwd"), arguments[arguments.index("--log") + 1]) == log.absolute()
    )
