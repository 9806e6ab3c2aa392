"""The name of this machine, also in a network of a run's own."""

import os
import socket

HOST = "DLBENCH_HOST"  # variable with the machine's name as it is outside


def host():
    """The name of this machine, also where `enter` has been."""
    return os.environ.get(HOST) or socket.gethostname()
