"""Runs of the trainer for its tests, each started by its own launcher."""

import os
import subprocess
import sys
import time
from pathlib import Path

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.programs import forked

REPOSITORY = Path(__file__).parents[3]
TRAIN = REPOSITORY / "workflow_scripts" / "train.py"
LEARNING = {"dataset": "digits", "optimizer": "momentum", "learning_rate": 0.02, "epochs": 1}
TWO_DEVICES = [
    {"strategy": "mirrored"},
    {"strategy": "horovod", "launcher": "horovodrun"},
    {"strategy": "horovod", "launcher": "mpirun"},
    {"strategy": "multiworker", "launcher": "local"},
]
SERVERS = {"strategy": "parameter_server", "launcher": "local"}


# Launchers that start nothing, or what they start by Python.
FORKED = ("none", "local")
# What runs of a framework import beside its packages, which takes as long.
LATER = {"pytorch": ("torch._dynamo",)}
# What the trainer sets before it imports a framework, as the base class of its strategies says.
BEFORE_IMPORT = {
    "tensorflow": {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"},
    "jax": {"KERAS_BACKEND": "jax"},
    "pytorch": {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
}


def train(log, data=None, flags=(), python=sys.executable, new_python=False, **fields):
    """Train with the run's own launcher. Returns the finished process.

    Args:
        new_python: start another Python even for a run of one process.
    """
    run = Run(**{"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, **fields})
    trainer = [str(python), str(TRAIN), *run.flags(), "--log", str(log), *flags]
    trainer += ["--data", str(data)] if data else []
    return ended(command_of(run, trainer, python), run, new_python)


def command_of(run, arguments, python):
    """The command of a run's launcher that starts the trainer with the given command line."""
    skip_without_horovod(run, python)
    launcher = plugins.load("launchers", run.launcher)
    return launcher.command(run, list(map(str, arguments)), Path(python).parents[1])


def skip_without_horovod(run, python):
    """Skip a test of Horovod where that is not installed."""
    installed = Path(python).parents[1].glob("lib/python3*/site-packages/horovod")
    if run.strategy == "horovod" and run.launcher != "none" and not any(installed):
        import pytest  # GPUs are checked without it

        pytest.skip("Horovod is not installed: dlbench environment envs/train --extra horovod")


def ended(command, run, new_python=False):
    """Run a run's command. Returns the finished process."""
    if new_python or run.launcher not in FORKED:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return forked.run(**how_forked(command, run), timeout=300)


def how_forked(command, run):
    """Arguments of `forked.run` for a run's command whose launcher is one of FORKED."""
    # A run takes the first cores that it may use, as do those that other suites train meanwhile.
    every = sorted(os.sched_getaffinity(0))
    alone = run.devices * run.copies_per_node == 1
    # Our launcher can be a program of the Python of what it starts.
    python = command[0 if run.launcher == "none" else command.index("--") + 1]
    return {
        "command": [python, *command[1:]],
        "packages": (*engine.packages(run.framework), *LATER.get(run.framework, ())),
        "settings": BEFORE_IMPORT[run.framework],
        "cores": every[-run.threads_per_device :] if alone else every,
        "deep": True,
    }


def convert(dataset, folder):
    """A converted dataset, made in the workflow's environment."""
    python = REPOSITORY / ".venv" / "bin" / "python"
    for program, *arguments in (
        ("dlbench", "fetch-dataset", dataset, "--folder", folder / "source"),
        ("convert_dataset.py", dataset, "--source", folder / "source", "--output", folder),
    ):
        subprocess.run([python, REPOSITORY / "workflow_scripts" / program, *arguments], check=True)
    return folder


def events(log, kind):
    return [event for event in event_log.read(log) if event["event"] == kind]


def pids_of_ranks(log, count, process):
    """Processes of all ranks or copies, once each has taken a step; None if the run has ended."""
    deadline = time.monotonic() + 240
    while process.poll() is None:
        paths = [p for p in (event_log.rank_path(log, r) for r in range(count)) if p.is_file()]
        if len(paths) == count and all('"event": "step"' in p.read_text() for p in paths):
            return [events(path, "run_start")[0]["pid"] for path in paths]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return None
