"""The source of the items of a run's steps: a converted dataset, or synthetic items."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from dlbench.trainer.reading import converted
from dlbench.trainer.reading.converted import InputSettings
from dlbench.trainer.reading.inputs import COPIED, SYNTHETIC
from dlbench.trainer.tensorflow.pipelines import Data
from dlbench.trainer.tensorflow.strategies import Base


class Source(converted.Source):
    """Items of a run.

    Attributes:
        data: the converted dataset, if the run has one.
        arguments: of the compiled step; set by `begin`.
        next: called inside the compiled step, returns a batch, (inputs, targets), from `arguments`.
    """

    data: Data
    arguments: tuple[Any, ...]
    next: Callable[..., Any]

    def begin(self, step: int) -> None:
        """Open the stream of the items that follow `step` steps."""
        raise NotImplementedError


def find(settings: InputSettings, data_folder: str | None) -> Source:
    """The source of a run.

    Raises:
        Error: there is no data, or it is of another kind than the model learns.
    """
    data = converted.open_dataset(Data, settings, data_folder)
    if data is None or settings.spec.probe == SYNTHETIC:  # the latter in its shape
        return Synthetic(settings, data)
    if settings.spec.probe == COPIED:
        return Copied(settings, data)
    return Items(data, settings)


class Synthetic(Source):
    """Random items, the same in every step.

    Args:
        shaped_as: a dataset whose shape and classes they have, and which are scaled in the step as
            its items are; None: they have the model's own, and are scaled beforehand.
    """

    def __init__(self, settings: InputSettings, shaped_as: Data | None = None):
        super().__init__(None, settings, shaped_as)
        self._strategy: Base = settings.strategy
        random = np.random.default_rng(settings.seed + self._strategy.rank)
        # For one device: `constants` makes them once for each.
        batch = settings.spec.batch_per_device
        self._items = settings.task.synthetic(random, batch, self.item_shape, self.classes)
        self._scale = tf.identity if shaped_as else settings.scale

    def begin(self, step: int) -> None:
        """Put the items on the devices; every step has the same."""
        inputs, targets = self._items
        constants = self._strategy.constants(
            lambda: (self._scale(tf.constant(inputs)), tf.constant(targets))
        )
        if isinstance(constants, tuple):
            self.arguments, self.next = (), lambda: constants
        else:
            self.arguments, self.next = (constants,), next


class Copied(Synthetic):
    """Synthetic items in the memory of the host, which are copied to the devices for each step."""

    def begin(self, step: int) -> None:
        """Open the stream of batches; all are the same."""
        devices = self._strategy.devices_per_process
        batch = tuple(np.concatenate([items] * devices) for items in self._items)
        self.arguments, self.next = (self._strategy.iterator(lambda *_: _repeated(batch)),), next


class Items(Source):
    """The items of a converted dataset, in an order fixed by the seed."""

    def __init__(self, data: Data, settings: InputSettings):
        super().__init__(data, settings)
        self.data, self.next = data, next
        self._strategy: Base = settings.strategy
        self._seed = settings.seed
        self._batch = settings.spec.batch_per_device * self._strategy.devices_per_process

    def begin(self, step: int) -> None:
        """Open the stream of the batches that follow `step` steps."""

        def batches(rank, size):
            return self._batches(rank, size, step)

        self.arguments = (self._strategy.iterator(batches),)

    def on_host(self, first_step: int) -> Iterator[Any]:
        return iter(self._batches(self._strategy.rank, self._strategy.size, first_step))

    def _batches(self, rank, size, step):
        return self.data.training_batches(self._batch, self._seed, rank, size, step)


def _repeated(batch):
    return tf.data.Dataset.from_tensors(batch).repeat()
