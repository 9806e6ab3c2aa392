"""The base of the engines of JAX and PyTorch, which call their step with each batch.

TensorFlow's step reads its batches itself.
"""

import collections
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from dlbench.trainer import engine, updates
from dlbench.trainer.reading.converted import InputSettings
from dlbench.trainer.reading.inputs import reader_of
from dlbench.trainer.reading.reader import DatasetReader, GrainReader, Items, Strategy
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import TASKS, Losses


class ArrayEngine:
    """Reads the batches of a run and calls the step with each.

    See dlbench/trainer/engine.py, which documents the methods. A subclass sets seeds and precision
    before it calls this constructor, and defines all methods that are missing here.
    """

    # By their names in INPUTS.
    READERS: Mapping[str, type[DatasetReader]] = {"dlbench": DatasetReader, "grain": GrainReader}
    LOSSES: Mapping[str, Losses]
    learning_rate: float

    def __init__(
        self, spec: Spec, strategy: Strategy, model_module: ModuleType, data_folder: str | None
    ):
        self.strategy, self._spec, self._model_module = strategy, spec, model_module
        self.gpu_count = strategy.gpu_count
        self._task, self._losses = TASKS[model_module.TASK], self.LOSSES[model_module.TASK]
        scale, seed = self._losses.scaled, engine.seed(spec)
        settings = InputSettings(spec, strategy, model_module, self._task, scale, seed)
        self._source = Items(settings, data_folder, self.READERS[reader_of(spec)])
        self.records = self._source.records
        self.data_sha256 = self._source.content_sha256
        self.item_shape = self._source.item_shape
        self._schedule = Schedule(spec, self.records)

    def begin(self, first: int) -> None:
        self._batches = self._source.batches(first)
        self._batch = next(self._batches)

    def host_batches(self, first: int) -> Iterator[Any]:
        return self._source.on_host(first)

    def step(self, index: int, until: int) -> float:
        return self.window(index, index, until)[0]

    def window(self, first: int, last: int, until: int) -> list[float]:
        losses = []
        for index in range(first, last + 1):
            if updates.learning_rate_changes(self._spec, index):
                self._set_learning_rate(*self._schedule.learning_rates(index, index))
            losses.append(self._launch_step(*self._batch))
            self._batch = next(self._batches)  # while the devices compute
        return self._wait(losses)

    def evaluate(self) -> dict[str, float]:
        totals: collections.Counter[str] = collections.Counter()
        examples, sums = 0, self._sums()
        for inputs, targets in self._source.held_out(engine.EVALUATION_BATCH):
            totals.update({name: float(sum_) for name, sum_ in sums(inputs, targets).items()})
            examples += len(inputs)
        return {**self._task.scores(totals), "examples": examples}

    def _launch_step(self, inputs: Any, targets: Any) -> Any:
        """Launch one step. Returns its loss, an array that the devices may still be computing."""
        raise NotImplementedError

    def _wait(self, losses: list[Any]) -> list[float]:
        """Wait for losses that `_launch_step` returned. Returns them as numbers."""
        raise NotImplementedError

    def _sums(self) -> Callable[[Any, Any], Mapping[str, Any]]:
        """A function that computes the task's sums over a batch with the present weights."""
        raise NotImplementedError

    def _set_learning_rate(self, rate: float) -> None:
        raise NotImplementedError
