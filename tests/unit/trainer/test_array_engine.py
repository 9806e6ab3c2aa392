"""array_engine: batches, learning rates and scores, with an engine in plain Python."""

import itertools

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine
from dlbench.trainer.array_engine import ArrayEngine
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.tasks import TASKS

RUN = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 20}


class Source:
    """Batches that count from the first one that is asked for, and twice as many held-out items."""

    def batches(self, first):
        return ((number, -number) for number in itertools.count(first + 1))

    def held_out(self, batch):
        yield [1] * batch, [1] * batch
        yield [1] * batch, [0] * batch


class Plain(ArrayEngine):
    """Its loss is the number of its batch; it notes with which rate it has done it."""

    def __init__(self, warmup_steps):
        self._spec = Run(**RUN, learning_rate=0.1, learning_rate_warmup_steps=warmup_steps)
        self._source, self._task = Source(), TASKS["classification"]
        self._schedule = Schedule(self._spec, None)
        self.done, self.set = [], []

    def _launch_step(self, inputs, targets):
        assert targets == -inputs
        self.done.append((inputs, self.learning_rate))
        return inputs

    def _wait(self, losses):
        return [float(loss) for loss in losses]

    def _sums(self):
        return lambda inputs, targets: {
            "loss": 2 * len(inputs),
            "top1": sum(targets),
            "top5": len(inputs),
            "items": len(inputs),
        }

    def _set_learning_rate(self, rate):
        self.learning_rate = rate
        self.set.append(rate)


def test_a_window_does_the_next_batches_each_with_the_rate_of_its_step():
    made = Plain(warmup_steps=4)
    made.begin(0)
    assert made.window(1, 3, 10) == [1, 2, 3]
    assert made.window(4, 6, 10) == [4, 5, 6]
    assert [number for number, _ in made.done] == [1, 2, 3, 4, 5, 6]
    rates = [rate for _, rate in made.done]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert len(made.set) == 4  # setting it costs time: not in steps that leave it as it is


def test_a_run_that_goes_on_begins_with_the_batch_after_its_last_step():
    made = Plain(warmup_steps=1)
    made.learning_rate = 0.1
    made.begin(7)
    assert made.step(8, 10) == 8


def test_scores_are_those_of_all_held_out_items():
    scores = Plain(warmup_steps=0).evaluate()
    assert scores == {"loss": 2, "top1": 0.5, "top5": 1, "examples": 2 * engine.EVALUATION_BATCH}
