"""Horovod's own launcher, over gloo: needs no MPI.

The environment's is started by its Python: the script horovodrun names the Python of the folder
that it was installed in, which another one is in a copy of the environment.
"""

import shlex

from dlbench import launchers, plugins

TAKES_TASKS = False
LOOPBACK_SUFFICES = True
MEETING = ("horovodrun",)
LISTENS_BY_NAME = True
MODULE = "horovod.runner.launch"

unsupported = launchers.of_this_machine


def command(run, trainer, environment):
    strategy = plugins.load("strategies", run.strategy).Strategy
    processes = strategy.processes_per_node(run)
    python = environment and str(environment / "bin" / "python")
    return [
        *([python, "-m", MODULE] if python else ["horovodrun"]),
        "--gloo",
        "-np",
        str(processes),
        "-H",
        f"localhost:{processes}",
        # As one word: horovodrun would take the trainer's --log for one of its own flags.
        "sh",
        "-c",
        f"exec {shlex.join(trainer)}",
    ]
