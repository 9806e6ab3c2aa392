"""Find and kill processes of runs whose supervisor was killed before it could end them.

Not all runtimes end their processes with their parent: udocker's proot does not, and the containers
of an engine have another parent. Leftover processes would compute beside the next timed run. So
each process of a run has its supervisor in an environment variable, and the supervisor of the next
run looks for processes whose supervisor is gone. Linux only, and on this node only.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from dlbench import Error
from dlbench.log import attempts

VARIABLE = "DLBENCH_SUPERVISOR"
BESIDE = {"DLBENCH_BESIDE": "1"}  # of processes that end by themselves, as a power meter
PROC = Path("/proc")
TIMEOUT_S = 10.0
# Processes that podman shares between all containers of a user.
SHARED = ("catatonit", "conmon", "podman", "fuse-overlayfs")


def mark(log: Path) -> dict[str, str]:
    """The variable that marks processes of a run with its supervisor, this process, and its log."""
    with contextlib.suppress(OSError):
        parts = [_kernel(), os.getpid(), _start_ticks(os.getpid()), log.absolute()]
        return {VARIABLE: " ".join(map(str, parts))}
    return {}


def end() -> None:
    """Kill the processes of attempts whose supervisor was killed.

    Raises:
        Error: some cannot be ended.
    """
    if not (log_by_pid := _find_leftovers()):
        return
    logs = ", ".join(sorted({log.parent.name for log in log_by_pid.values()}))
    print(f"{len(log_by_pid)} processes of killed attempts are ended ({logs})", file=sys.stderr)
    deadline = time.monotonic() + TIMEOUT_S
    while log_by_pid and time.monotonic() < deadline:
        for pid in log_by_pid:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        log_by_pid = _find_leftovers()
    if log_by_pid:
        raise Error(
            f"processes {', '.join(map(str, log_by_pid))} of a killed attempt ({logs}) cannot be "
            "ended; beside them nothing can be timed"
        )


def is_of_run(process: Path, marked: dict[str, str]) -> bool:
    """Whether a process trains for a run, wherever its parents are.

    Args:
        process: its folder in /proc.
        marked: the `mark` of the run.

    Raises:
        OSError: it has ended, or belongs to another user.
    """
    if not marked or (process / "comm").read_text().strip() in SHARED:
        return False
    variables = (process / "environ").read_bytes().split(b"\0")
    (name, value), (beside, _) = *marked.items(), *BESIDE.items()
    is_marked = f"{name}={value}".encode() in variables
    return is_marked and not any(v.startswith(f"{beside}=".encode()) for v in variables)


def is_supervisor_gone(mark: str) -> bool:
    """Whether the supervisor in a mark is known to be gone."""
    return _supervisor_state(mark) is False


def is_supervisor_running(mark: str) -> bool:
    """Whether the supervisor in a mark is known to be running."""
    return _supervisor_state(mark) is True


def _find_leftovers():
    """{process id: log of its attempt} of this user's leftover processes on this node."""
    log_by_pid = {}
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(
            OSError, ValueError
        ):  # it has just ended, or belongs to another user
            log = _orphaned(path) if path.stat().st_uid == os.geteuid() else None
            if log and attempts.is_open(log) and (path / "comm").read_text().strip() not in SHARED:
                log_by_pid[int(path.name)] = log
    return log_by_pid


def _orphaned(path):
    """The log in the mark of a process if its supervisor is gone; else None."""
    variables = (path / "environ").read_bytes().split(b"\0")
    value = next((v for v in variables if v.startswith(f"{VARIABLE}=".encode())), b"")
    mark = os.fsdecode(value).partition("=")[2]
    return Path(mark.split(" ", 3)[3]) if mark and is_supervisor_gone(mark) else None


def _supervisor_state(mark):
    """Whether a supervisor runs; None if unknown: on another node, or in another PID namespace."""
    parts = mark.split(" ", 3)
    if len(parts) < 4 or parts[0] != _kernel():
        return None
    with contextlib.suppress(OSError):
        return _start_ticks(parts[1]) == parts[2]
    return False


def _kernel():
    """The id of this boot of this machine, and of the PID namespace."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"


def _start_ticks(pid):
    """When a process was started, in ticks since the boot; ids of processes may be used again.

    Raises:
        OSError: it has ended.
    """
    state, *rest = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(pid)
    return rest[18]  # field 22 of proc(5)
