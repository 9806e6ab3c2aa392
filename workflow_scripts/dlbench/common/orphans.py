"""Processes that do not outlive the one that started them, however it ended."""

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal once its parent is gone, by signal 9 too.

    The memory killer and some schedulers end a parent so, and what it started would go on, keep
    its pipes open and let those who read from them wait for ever. Linux only; elsewhere nothing is
    done.

    Args:
        parent: its process id, from `os.getpid()` before this process was forked.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it was gone before we asked
            os.kill(os.getpid(), number)
