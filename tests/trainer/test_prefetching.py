"""Batches that TensorFlow copies to a GPU ahead of the step: here its device is a CPU all the same.

A run's own model file says to the strategy, as it opens the stream of batches, that it is on GPUs.
"""

import pytest

from dlbench.log import event_log
from support.trainers.training_runs import TWO_DEVICES, events, train

AS_ON_GPUS = """
from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.tensorflow import pipelines

lenet5 = plugins.load("keras/models", "lenet5")
TASK, INPUT_SHAPE, CLASSES, build = lenet5.TASK, lenet5.INPUT_SHAPE, lenet5.CLASSES, lenet5.build
begin = pipelines.Source.begin


def begin_as_on_gpus(self, step):
    self._strategy.on_gpus = True
    begin(self, step)
    self._strategy.on_gpus = False
    assert "Distributed" in type(self.arguments[0]).__name__


pipelines.Source.begin = begin_as_on_gpus
"""
FIELDS = {"dataset": "digits", "evaluate": "no", "batch_per_device": 32, "steps": 6}


@pytest.mark.parametrize(
    "how",
    [{"strategy": "single"}, TWO_DEVICES[1] | {"steps_per_sync": 3}, TWO_DEVICES[3]],
    ids=lambda how: how["strategy"],
)
def test_batches_that_are_copied_ahead_are_those_of_the_run(how, digits, tmp_path):
    (tmp_path / "lenet5_ahead.py").write_text(AS_ON_GPUS)
    devices = 1 if how["strategy"] == "single" else 2
    fields = {**FIELDS, **how, "devices_per_node": devices}
    found = []
    for model in ("lenet5", "lenet5_ahead"):
        log = tmp_path / model / "train.jsonl"
        finished = train(log, digits, ["--model-folder", str(tmp_path)], model=model, **fields)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        paths = event_log.rank_paths(log)
        assert len(paths) == devices
        found.append([event["loss"] for path in paths for event in events(path, "step")])
    assert found[1] == pytest.approx(found[0], rel=1e-5)
