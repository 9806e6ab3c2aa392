"""Horovod's own launcher, over gloo: needs no MPI."""

import shlex

from dlbench import launchers, plugins

TAKES_TASKS = False
LOOPBACK_SUFFICES = True
MEETING = ("horovodrun",)

unsupported = launchers.of_this_machine


def command(run, trainer, environment):
    strategy = plugins.load("strategies", run.strategy).Strategy
    processes = strategy.processes_per_node(run)
    horovodrun = environment / "bin" / "horovodrun" if environment else "horovodrun"
    return [
        str(horovodrun),
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
