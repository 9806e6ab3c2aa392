"""Detect what ends a run from outside: a signal, or the end of the workflow that started it."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

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
