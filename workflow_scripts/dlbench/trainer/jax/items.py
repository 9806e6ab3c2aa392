"""Where the items of a run's steps come from: a converted dataset, or made up beforehand."""

from collections.abc import Callable, Iterator
from types import ModuleType

import jax
import numpy as np

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer.jax.strategies import Base
from dlbench.trainer.reading.stored import Stored
from dlbench.trainer.strategy import Spec

Batch = tuple[jax.Array, jax.Array]  # (inputs, targets)


class Source:
    """Items of a run.

    Attributes:
        item_shape: of one input.
        classes: how many there are.
        records: of the training split; None if the items have no end.
        content_sha256: digest of the converted dataset; None if the items are synthetic.
        scaled: what the model gets of the inputs of a batch.
    """

    item_shape: tuple[int, ...]
    classes: int
    records: int | None = None
    content_sha256: str | None = None
    scaled: Callable[[jax.Array], jax.Array]

    def batches(self, first_step: int) -> Iterator[Batch]:
        """The batches of this process after so many steps, on its devices; they have no end."""
        raise NotImplementedError

    def held_out(self, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All held-out items once; the last batch may be smaller."""
        raise NotImplementedError


def find(
    spec: Spec,
    strategy: Base,
    native: ModuleType,
    task: ModuleType,
    losses: ModuleType,
    data_folder: str | None,
    seed: int,
) -> Source:
    """The source of a run.

    Raises:
        Error: there is no data, or it is of another kind than the model learns.
    """
    if plugins.constants("datasets", spec.dataset)["SYNTHETIC"]:
        return Synthetic(spec, strategy, native, task, losses, seed)
    if data_folder is None:
        raise Error(f"dataset {spec.dataset} is not synthetic: --data must name its folder")
    items = Items(spec, strategy, native, losses, data_folder, seed)
    kind = items.data.manifest["kind"]
    if kind != task.KIND:
        raise Error(
            f"model {spec.model} learns {native.TASK} and needs data of the kind {task.KIND}; "
            f"{spec.dataset} is of the kind {kind}"
        )
    return items


class Synthetic(Source):
    """Random items in the model's native shape, the same in every step and scaled beforehand."""

    def __init__(
        self,
        spec: Spec,
        strategy: Base,
        native: ModuleType,
        task: ModuleType,
        losses: ModuleType,
        seed: int,
    ):
        self.item_shape, self.classes = native.INPUT_SHAPE, native.CLASSES
        self.scaled = lambda inputs: inputs
        inputs, targets = task.synthetic(
            np.random.default_rng(seed + strategy.rank),
            spec.batch_per_device * strategy.devices_per_process,
            self.item_shape,
            self.classes,
        )
        inputs = np.asarray(losses.scaled(jax.numpy.asarray(inputs)))
        self._batch = strategy.spread(inputs), strategy.spread(targets)

    def batches(self, first_step: int) -> Iterator[Batch]:
        while True:
            yield self._batch


class Items(Source):
    """The items of a converted dataset, in an order fixed by the seed."""

    def __init__(
        self,
        spec: Spec,
        strategy: Base,
        native: ModuleType,
        losses: ModuleType,
        folder: str,
        seed: int,
    ):
        self.data = Stored(folder, native.INPUT_SHAPE, spec.augment, spec.cache)
        self.item_shape = self.data.item_shape
        self.classes = self.data.classes or native.CLASSES
        self.records = self.data.records("train")
        self.content_sha256 = self.data.content_sha256()
        self.scaled = losses.scaled
        self._strategy, self._seed = strategy, seed
        self._batch = spec.batch_per_device * strategy.devices_per_process

    def batches(self, first_step: int) -> Iterator[Batch]:
        rank, size = self._strategy.rank, self._strategy.size
        for inputs, targets in self.data.training_batches(
            self._batch, self._seed, rank, size, first_step
        ):
            yield self._strategy.spread(inputs), self._strategy.spread(targets)

    def held_out(self, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.data.validation_batches(batch)
