"""Processes of runs whose supervisor was killed before it could end them.

Not all runtimes pass on that a parent is gone: udocker's proot does not, and the containers of an
engine have another parent. What they leave would compute beside the next timed run. So each process
of a run carries in its environment who supervises it, and who supervises the next run looks for
those whose supervisor is no more. Linux only, and on this node only.
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
PROC = Path("/proc")
TIMEOUT_S = 10.0
# Of podman's user, not of one container: that of the user's other containers, too.
SHARED = ("catatonit", "conmon", "podman", "fuse-overlayfs")


def mark(log: Path) -> dict[str, str]:
    """The variable by which processes say that this process supervises their run, and its log."""
    with contextlib.suppress(OSError):
        words = [_kernel(), os.getpid(), _start_ticks(os.getpid()), log.absolute()]
        return {VARIABLE: " ".join(map(str, words))}
    return {}


def end() -> None:
    """End the processes of attempts whose supervisor was killed.

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


def is_supervisor_gone(mark: str) -> bool:
    """Whether the supervisor that a mark's words name is no more, as far as is seen from here."""
    return _supervisor_state(mark) is False


def is_supervisor_running(mark: str) -> bool:
    """Whether the supervisor that a mark's words name is there, as far as is seen from here."""
    return _supervisor_state(mark) is True


def _find_leftovers():
    """{process: log of its attempt}, those of this user on this node."""
    log_by_pid = {}
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # ended meanwhile, or somebody else's
            log = _orphaned(path) if path.stat().st_uid == os.geteuid() else None
            if log and attempts.is_open(log) and (path / "comm").read_text().strip() not in SHARED:
                log_by_pid[int(path.name)] = log
    return log_by_pid


def _orphaned(path):
    """The log of the run that a process is of, if its supervisor is gone; else None."""
    variables = (path / "environ").read_bytes().split(b"\0")
    value = next((v for v in variables if v.startswith(f"{VARIABLE}=".encode())), b"")
    words = os.fsdecode(value).partition("=")[2]
    return Path(words.split(" ", 3)[3]) if words and is_supervisor_gone(words) else None


def _supervisor_state(mark):
    """Whether a supervisor is there; None: another node's, or one that cannot be seen from here."""
    words = mark.split(" ", 3)
    if len(words) < 4 or words[0] != _kernel():
        return None
    with contextlib.suppress(OSError):
        return _start_ticks(words[1]) == words[2]
    return False


def _kernel():
    """Which boot of which machine this is, and which of its namespaces of processes."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"


def _start_ticks(pid):
    """When a process was started, in ticks since the boot; a number may be used again.

    Raises:
        OSError: it has ended.
    """
    state, *rest = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(pid)
    return rest[18]  # field 22 of proc(5)
