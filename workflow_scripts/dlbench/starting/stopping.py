"""Detect what ends a run from outside: a signal, or the end of the workflow that started it.

And ask its trainer to end by itself, with a checkpoint: by a file, or by a signal.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

GRACE_S = 60.0  # for a last checkpoint
POLL_S = 0.2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def from_outside() -> Iterator[Callable[[], str]]:
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


def by_file(trainer: "subprocess.Popen[bytes]", request: Path) -> None:
    """Ask a trainer by a file to end, and wait until it has, or GRACE_S."""
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    _wait(trainer, GRACE_S)
    request.unlink(missing_ok=True)


def by_signal(trainer: "subprocess.Popen[bytes]", name: str, grace_s: float) -> None:
    """Ask a trainer by a signal to end, and wait until it has, or some seconds."""
    with contextlib.suppress(ProcessLookupError):
        trainer.send_signal(signal.Signals[name])
    _wait(trainer, grace_s)


def _wait(trainer, seconds):
    deadline = time.monotonic() + seconds
    while trainer.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
