"""What ends a run from outside: a signal, or that the workflow which started it is gone."""

import contextlib
import os
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def signals():
    """The list of signals that arrive; a trainer would outlive one that comes as it starts."""
    received = []
    handlers = {
        number: signal.signal(number, lambda n, _: received.append(n)) for number in SIGNALS
    }
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def by(received, parent):
    """What has ended a run, in words; "" for nothing.

    Args:
        received: the list of `signals`.
        parent: the number of the process that was our parent when it began.
    """
    if received:
        return f"signal {signal.Signals(received[0]).name}"
    return "signal: the workflow is gone" if os.getppid() != parent else ""
