"""The processes of a run: started, asked to end, and ended, those of killed supervisors included.

Not all runtimes end their processes with their parent: udocker's proot does not, and the containers
of an engine have another parent. Leftover processes would compute beside the next timed run. So
each process of a run has its supervisor in an environment variable, and the supervisor of the next
run looks for processes whose supervisor is gone. Linux only, and on this node only.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dlbench import Error
from dlbench.common import orphans
from dlbench.log import attempts
from dlbench.machine import gpus

VARIABLE = gpus.SUPERVISOR
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


def end_leftovers() -> None:
    """Kill the processes of attempts whose supervisor was killed.

    Raises Error: some cannot be ended.
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
    """Whether a process, a folder in /proc, trains for a run, wherever its parents are.

    `marked`: the `mark` of the run. Raises OSError: it has ended, or belongs to another user.
    """
    if not marked or (process / "comm").read_text().strip() in SHARED:
        return False
    return orphans.has_variables(process, marked) and not orphans.has_variables(process, BESIDE)


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
    return Path(mark.split(" ", 3)[3]) if mark and _is_supervisor_gone(mark) else None


def _is_supervisor_gone(mark):
    """Whether it is known to be gone: not on another node or in another PID namespace."""
    parts = mark.split(" ", 3)
    if len(parts) < 4 or parts[0] != _kernel():
        return False
    with contextlib.suppress(OSError):
        return _start_ticks(parts[1]) != parts[2]
    return True


def _kernel():
    """The id of this boot of this machine, and of the PID namespace."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"


def _start_ticks(pid):
    """When a process was started, in ticks since the boot; ids of processes may be used again.

    Raises OSError: it has ended.
    """
    state, *rest = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(pid)
    return rest[18]  # field 22 of proc(5)


GRACE_S = 5.0  # between SIGTERM and SIGKILL
POLL_S = 0.02


def start(command: Sequence[str], log: Path, messages: Path) -> subprocess.Popen[bytes]:
    """Start a trainer in a session of its own; its output is appended to the file `messages`.

    `log`: of the run; it goes into the environment of the trainer's processes.
    """
    with open(messages, "ab") as file:
        return subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=functools.partial(orphans.end_with_parent, os.getpid()),
            env=os.environ | mark(log),
        )


def describe_exit(returncode: int) -> str:
    """How a process ended, by subprocess's return code.

    >>> describe_exit(3), describe_exit(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"exit code {returncode}"


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

    They are a set of (process id, start in ticks since the boot), as ids may be used again.

    `known`: an earlier result. A process that is being ended loses its command line some time
    before it is gone.
    """
    remaining, marked = set(), mark(log)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
            fields = (path / "stat").read_text().rpartition(")")[2].split()  # from the third on
            state, session, started = fields[0], int(fields[3]), fields[19]
            process = (int(path.name), started)
            if state not in "ZX" and (
                process in known
                or session == trainer.pid
                or _trains(path, log)
                or is_of_run(path, marked)
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


CHECKPOINT_GRACE_S = 60.0  # for a last checkpoint
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def stopping_from_outside() -> Iterator[Callable[[], str]]:
    """Yield a function that returns what ends the run from outside; "" for nothing.

    Signals are caught from here on, before the trainer starts: a trainer that is just starting
    would otherwise outlive them.
    """
    received: list[int] = []
    parent = os.getppid()
    handlers = {
        number: signal.signal(number, lambda n, _: received.append(n)) for number in SIGNALS
    }

    def reason():
        if received:
            return f"signal {signal.Signals(received[0]).name}"
        return "signal: the workflow is gone" if os.getppid() != parent else ""

    try:
        yield reason
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ask_by_file(trainer: subprocess.Popen[bytes], request: Path) -> None:
    """Ask a trainer by a file to end, and wait until it has, or CHECKPOINT_GRACE_S."""
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    with contextlib.suppress(subprocess.TimeoutExpired):
        trainer.wait(CHECKPOINT_GRACE_S)
    request.unlink(missing_ok=True)


def ask_by_signal(trainer: subprocess.Popen[bytes], name: str, grace_s: float) -> None:
    """Ask a trainer by a signal to end, and wait until it has, or some seconds."""
    with contextlib.suppress(ProcessLookupError):
        trainer.send_signal(signal.Signals[name])
    with contextlib.suppress(subprocess.TimeoutExpired):
        trainer.wait(grace_s)
