"""The batches of a run's steps as NumPy arrays, which a strategy spreads over its devices.

For frameworks whose step takes arrays: it is called with each batch.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from dlbench.trainer.reading.converted import InputSettings, Source, open_dataset
from dlbench.trainer.reading.inputs import COPIED, SYNTHETIC
from dlbench.trainer.reading.stored import Batch, DatasetReader

Arrays = tuple[Any, Any]  # (inputs, targets), the framework's own


class Strategy(Protocol):
    """What the items of a process depend on of its strategy."""

    rank: int
    size: int
    devices_per_process: int

    def to_devices(self, values: np.ndarray) -> Any:
        """Put the items of all devices of this process on them, as the framework's array."""

    def prefetch_to_devices(self, batches: Iterator[Batch]) -> Iterator[Arrays]:
        """Copy each batch to the devices of this process while the step before it computes.

        The caller asks for a batch only once the step that uses the batch before is launched.
        """


def find(
    settings: InputSettings, data_folder: str | None, reader: type[DatasetReader] = DatasetReader
) -> "Synthetic | Items":
    """The items of a run.

    Args:
        settings: its `strategy` is a Strategy, and its `scale` takes NumPy arrays and those of the
            framework. What it returns for NumPy arrays must be accepted by `np.asarray`.
        data_folder: of the converted dataset, if the items are of one.
        reader: what reads it.

    Raises:
        Error: there is no data, or it is of another kind than the model learns.
    """
    data = open_dataset(reader, settings, data_folder)
    if data is None or settings.spec.probe in (SYNTHETIC, COPIED):  # the latter in its shape
        return Synthetic(settings, data)
    return Items(data, settings)


class Synthetic(Source):
    """Random items, the same in every step.

    Args:
        shaped_as: a dataset whose shape and classes they have, and which are scaled in the step as
            its items are; None: they have the model's own, and are scaled beforehand.
    """

    def __init__(self, settings: InputSettings, shaped_as: DatasetReader | None = None):
        super().__init__(None, settings, shaped_as)
        strategy: Strategy = settings.strategy
        random = np.random.default_rng(settings.seed + strategy.rank)
        items = _items_of_process(settings)
        inputs, targets = settings.task.synthetic(random, items, self.item_shape, self.classes)
        inputs = inputs if shaped_as else np.asarray(settings.scale(inputs))
        batch = np.ascontiguousarray(inputs), np.ascontiguousarray(targets)
        if settings.spec.probe == COPIED:
            self._batches = strategy.prefetch_to_devices(itertools.repeat(batch))
        else:
            self._batches = itertools.repeat(tuple(map(strategy.to_devices, batch)))

    def batches(self, first_step: int) -> Iterator[Arrays]:
        """The same batch for ever."""
        return self._batches

    def held_out(self, batch: int) -> Iterator[Batch]:
        """No items: random ones say nothing about what was learned."""
        return iter(())


class Items(Source):
    """The items of a converted dataset, in an order fixed by the seed."""

    def __init__(self, data: DatasetReader, settings: InputSettings):
        super().__init__(data, settings)
        self._data, self._seed = data, settings.seed
        self._strategy: Strategy = settings.strategy
        self._batch = _items_of_process(settings)

    def batches(self, first_step: int) -> Iterator[Arrays]:
        """The batches of this process after so many steps, on its devices; they have no end."""
        return self._strategy.prefetch_to_devices(self.on_host(first_step))

    def on_host(self, first_step: int) -> Iterator[Batch]:
        strategy = self._strategy
        return self._data.training_batches(
            self._batch, self._seed, strategy.rank, strategy.size, first_step
        )

    def held_out(self, batch: int) -> Iterator[Batch]:
        """All held-out items once, as NumPy arrays; the last batch may be smaller."""
        return self._data.validation_batches(batch)


def _items_of_process(settings):
    return settings.spec.batch_per_device * settings.strategy.devices_per_process
