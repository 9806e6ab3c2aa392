"""The name of this machine, also inside the separate network that a run may have."""

import os
import socket

HOST = "DLBENCH_HOST"  # variable with the name of the machine outside of that network


def host() -> str:
    """The name of this machine, also inside a network of dlbench.starting.start_unreachable."""
    return os.environ.get(HOST) or socket.gethostname()


def short(name: str) -> str:
    """A machine's name without its domain, in which schedulers and the machine may differ.

    >>> short("n1.cluster.example"), short("n1"), short("10.0.0.1")
    ('n1', 'n1', '10.0.0.1')
    """
    first = name.partition(".")[0]
    return name if first.isdecimal() else first
