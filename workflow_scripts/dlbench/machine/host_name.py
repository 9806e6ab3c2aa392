"""The name of this machine, also inside the network of its own that a run may have."""

import os
import socket

HOST = "DLBENCH_HOST"  # variable with the name of the machine outside of that network


def host() -> str:
    """The name of this machine, also inside a network of dlbench.starting.start_unreachable."""
    return os.environ.get(HOST) or socket.gethostname()
