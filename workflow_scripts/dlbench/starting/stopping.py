"""What ends a run from outside: a signal, or that the workflow which started it is gone."""

import contextlib
import os
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
    """Collect the signals that arrive; a trainer would outlive one that comes as it starts."""
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda n, _: received.append(n)) for number in SIGNALS
    }
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def reason(received: list[int], parent: int) -> str:
    """What ends a run from outside, in words; "" for nothing.

    Args:
        received: the list of `signals`.
        parent: the number of the process that was our parent when the run began.
    """
    if received:
        return f"signal {signal.Signals(received[0]).name}"
    return "signal: the workflow is gone" if os.getppid() != parent else ""
