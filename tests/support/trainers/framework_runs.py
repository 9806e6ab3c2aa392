"""Frameworks other than TensorFlow for their tests, and values from their runs' logs."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.log import event_log
from support.machines.paths import REPOSITORY
from support.programs import forked
from support.trainers.training_runs import FORKED, events, how_forked, train

ON_DIGITS = {"dataset": "digits", "evaluate": "no", "optimizer": "momentum", "batch_per_device": 32}


class Framework(NamedTuple):
    """A framework with its names for things.

    Attributes:
        fields: of each of its runs.
        two_processes: further fields of a run in which each of two devices has a process.
        versions: what a log names beside Python and NumPy.
    """

    fields: dict[str, Any]
    two_processes: dict[str, Any]
    versions: set[str]

    @property
    def name(self):
        return self.fields["framework"]

    def trained(self, log, python, data=None, flags=(), **fields):
        """The events of a run that ends well."""
        finished = train(log, data, flags, python, **{**self.fields, **fields})
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return list(event_log.read(log))

    def refused(self, log, python, flags=(), **fields):
        """The message of a run that is refused."""
        finished = train(log, None, flags, python, **{"steps": 1, **self.fields, **fields})
        assert finished.returncode == 1, finished.stderr
        assert "Traceback" not in finished.stderr
        return finished.stderr


JAX = Framework(
    fields={"framework": "jax", "environment": "jax"},
    two_processes={
        "strategy": "sharded",
        "strategy_options": "processes=device",
        "launcher": "local",
        "devices_per_node": 2,
    },
    versions={"jax", "jaxlib", "keras"},
)
PYTORCH = Framework(
    fields={"framework": "pytorch", "environment": "pytorch"},
    two_processes={"strategy": "ddp", "launcher": "local", "devices_per_node": 2},
    versions={"pytorch"},
)
ALL = {framework.name: framework for framework in (JAX, PYTORCH)}


def small_model(framework, folder):
    """Flags that name a folder with the model `small_model` of a framework."""
    name = "small_torch_model" if framework.name == "pytorch" else "small_model"
    source = REPOSITORY / f"tests/support/trainers/{name}.py"
    (folder / "small_model.py").write_text(source.read_text())
    return ["--model-folder", str(folder)]


def stopped(command, run, log, step, how):
    """(exit code, output) of a run that is asked to stop after a step.

    Args:
        how: the number of a signal, or the file that asks for it.
    """
    if run.launcher in FORKED:
        process = forked.start(**how_forked(command, run), together=True)
    else:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, text=True, **streams)
    while not (log.is_file() and _last_step(log.read_text()) >= step):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    if isinstance(how, Path):
        how.parent.mkdir(exist_ok=True)
        how.touch()
    else:
        process.send_signal(how)
    output = process.communicate(timeout=120)[0]
    return process.returncode, output


def _last_step(text):
    found = re.findall(r'"event": "step", "step": (\d+),', text)
    return int(found[-1]) if found else 0


def steps_of(log):
    """(step, loss, learning rate) of each step, in or out of windows."""
    found = []
    for event in events(log, "step"):
        losses = event.get("losses", [event["loss"]])
        rates = event.get("learning_rates", [event["learning_rate"]] * len(losses))
        first = event["step"] - len(losses) + 1
        found += zip(range(first, event["step"] + 1), losses, rates, strict=True)
    return found


def losses(log):
    return [loss for _, loss, _ in steps_of(log)]


def mean_losses(log):
    """Of each step the mean over the ranks, which is what a record has."""
    ranks = [losses(path) for path in event_log.rank_paths(log)]
    return [sum(each) / len(each) for each in zip(*ranks, strict=True)]


def digests(log):
    """Digests of the final weights, of all devices of all ranks."""
    ends = [events(path, "run_end")[0] for path in event_log.rank_paths(log)]
    return [digest for end in ends for digest in end["weights_sha256"]]
