"""A stopped run resumes as if it had never stopped: bit for bit, on every strategy."""

import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from support.trainers.framework_runs import digests, steps_of, stopped
from support.trainers.shards import dataset
from support.trainers.training_runs import TRAIN, TWO_DEVICES, command_of, ended, events

# Dropout, moving averages of the optimizer and a moving learning rate: all that has a state.
FIELDS = {"model": "cnn12", "dataset": "cifar10", "batch_per_device": 4, "epochs": 14,
          "optimizer": "momentum", "learning_rate_warmup_steps": 120, "deterministic": True,
          "steps_per_sync": 4}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    random = np.random.default_rng(1)

    def item(index):
        return {"image/encoded": random.bytes(3072), "image/class/label": [index % 10]}

    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    return dataset(tmp_path_factory.mktemp("data") / "cifar10", 101, 3, reader, item)


@pytest.fixture(scope="module")
def whole(images, tmp_path_factory):
    """A function that gives what a run comes to that is never stopped."""
    found = {}

    def of(run):
        if run not in found:
            folder = tmp_path_factory.mktemp("whole")
            finished = ended(command(run, folder, images), run)
            assert finished.returncode == 0, finished.stderr
            found[run] = result(folder)
        return found[run]

    return of


def command(run, folder, data, *flags):
    words = [sys.executable, TRAIN, *run.flags(), "--data", data, "--log", folder / "train.jsonl"]
    words += ["--checkpoint", folder / "checkpoint", *flags]
    return command_of(run, words, sys.executable)


def result(folder):
    """Weights, losses, rates and scores of all ranks; what must be the same bit for bit."""
    log = folder / "train.jsonl"
    scores = [(e["step"], e["loss"], e["top1"]) for e in events(log, "eval")]
    return digests(log), [steps_of(path) for path in event_log.rank_paths(log)], scores


@pytest.mark.parametrize(
    ("how", "stop"),
    [
        pytest.param({}, signal.SIGTERM, marks=pytest.mark.ci),
        ({}, signal.SIGKILL),
        *((TWO_DEVICES[place], None) for place in (0, 1, 3)),
    ],
    ids=["SIGTERM", "SIGKILL", "mirrored", "horovod", "multiworker"],
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(how, stop, images, whole, tmp_path):
    # Ranks meet twice a second: so many steps are not done by then, also on an idle machine.
    fields = how and how | {"epochs": 9, "devices_per_node": 2, "steps_per_sync": None}
    run, log, folder = Run(**FIELDS | fields), tmp_path / "train.jsonl", tmp_path / "checkpoint"
    flags = ["--checkpoint-every-min", "0.0001"] if stop == signal.SIGKILL else []
    start = command(run, tmp_path, images, *flags)
    code, said = stopped(start, run, log, 12 if how else 30, stop or (folder / "stop"))
    assert code == (75 if stop == signal.SIGTERM else -stop if stop else code) != 0, said
    if stop != signal.SIGKILL:
        assert "with a checkpoint after step" in said
        assert not events(log, "run_end")
    if stop == signal.SIGTERM:
        other = Run(**FIELDS | {"batch_per_device": 5})
        refused = ended(command(other, tmp_path, images), other)
        assert refused.returncode == 1
        assert "a checkpoint of another run (batch_per_device: 4 there, 5 here)" in refused.stderr
    (folder / "stop").unlink(missing_ok=True)
    if not how:  # The workflow has deleted the log meanwhile.
        log.write_text('{"event": "launch", "command": []}\n')
    finished = ended(command(run, tmp_path, images), run)
    assert finished.returncode == 0, finished.stderr
    assert result(tmp_path) == whole(run)
    assert not folder.exists()
    (resume,), steps = events(log, "resume"), events(log, "step")
    assert 0 < resume["step"] < steps[-1]["step"]
    assert [step["t_s"] for step in steps] == sorted(step["t_s"] for step in steps)
    again = [each for each in steps if 0 < each["step"] - resume["step"] <= run.warmup_steps]
    assert again and all(step["warm_up"] for step in again)
    if not how:
        kinds = [event["event"] for event in event_log.read(log)]
        at = kinds.index("launch")
        assert kinds[at : at + 5] == ["launch", "begin", "stage", "stage", "resume"]
        assert kinds[:4] == ["begin", "stage", "stage", "run_start"]


@pytest.mark.ci
def test_without_checkpoints_a_signal_ends_the_run_at_once(tmp_path):
    run, log = (
        Run(**FIELDS | {"dataset": "synthetic", "epochs": None, "steps": 10**6}),
        tmp_path / "log",
    )
    start = command_of(
        run, [sys.executable, TRAIN, *run.flags(), "--log", log], Path(sys.executable)
    )
    code, said = stopped(start, run, log, 1, signal.SIGTERM)
    assert code == 1
    assert "Traceback" not in said
    (end,) = events(log, "run_end")
    assert (end["status"], end["message"]) == ("failed", event_log.STOPPED_BY_SIGNAL)
