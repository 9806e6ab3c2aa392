"""Processes: that they end with their parent, however it ends, and whose they are."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Make the kernel send this process a signal when its parent ends, even by SIGKILL.

    The out-of-memory killer and some schedulers end a parent by SIGKILL. Its children would go on
    and keep their pipes open, and readers of these would wait for ever. Linux only; on other
    systems nothing is done. `parent`: PID of the parent, from `os.getpid()` before this process was
    forked.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # the parent ended before the call
            os.kill(os.getpid(), number)


def has_variables(process: Path, variables: Mapping[str, str]) -> bool:
    """Whether a process, a folder in /proc, was started with these environment variables.

    Raises OSError: it has ended, or belongs to another user.
    """
    environ = (process / "environ").read_bytes().split(b"\0")
    return all(os.fsencode(f"{name}={value}") in environ for name, value in variables.items())
