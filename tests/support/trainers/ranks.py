"""Two processes of a program that find one another by torchrun's variables, without torchrun."""

import os
import socket
import subprocess

from support.machines.paths import REPOSITORY


def outputs(python, program, arguments, ranks=(0, 1), size=2):
    """What each of `size` ranks prints; those that are not started are missing.

    Args:
        program: Python code.
        arguments: of its command line.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    command = list(map(str, [python, "-c", program, *arguments]))
    known = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    how = {"cwd": REPOSITORY, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [
        subprocess.Popen(
            command, env=os.environ | known | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, **how
        )
        for rank in ranks
    ]
    return [process.communicate(timeout=300)[0] for process in started]
