"""Where the items of a run's steps come from: a converted dataset, or made up beforehand."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.pipelines import Data
from dlbench.trainer.tensorflow.strategies import Base


class Source:
    """Items of a run.

    Attributes:
        item_shape: of one input.
        classes: how many there are.
        records: of the training split; None if the items have no end.
        content_sha256: digest of the converted dataset; None if the items are synthetic.
        data: the converted dataset, if there is one.
        arguments: with which the compiled step is called; known after `begin`.
        next: makes a batch, (inputs, targets), of the arguments inside the compiled step.
        scaled: what the model gets of the inputs of a batch.
    """

    item_shape: tuple[int, ...]
    classes: int
    records: int | None = None
    content_sha256: str | None = None
    data: Data
    arguments: tuple[Any, ...]
    next: Callable[..., Any]
    scaled: Callable[[tf.Tensor], tf.Tensor]

    def begin(self, step: int) -> None:
        """Make the items ready that follow so many steps."""
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
    stored = Stored(spec, strategy, native, losses, data_folder, seed)
    kind = stored.data.manifest["kind"]
    if kind != task.KIND:
        raise Error(
            f"model {spec.model} learns {native.TASK} and needs data of the kind {task.KIND}; "
            f"{spec.dataset} is of the kind {kind}"
        )
    return stored


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
        items = task.synthetic(
            np.random.default_rng(seed + strategy.rank),
            spec.batch_per_device,
            self.item_shape,
            self.classes,
        )
        self._strategy, self._losses, self._items = strategy, losses, items

    def begin(self, step: int) -> None:
        """Put the items where they are used; every step has the same."""
        inputs, targets = self._items
        constants = self._strategy.constants(
            lambda: (self._losses.scaled(tf.constant(inputs)), tf.constant(targets))
        )
        if isinstance(constants, tuple):
            self.arguments, self.next = (), lambda: constants
        else:
            self.arguments, self.next = (constants,), next


class Stored(Source):
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
        self.data = Data(folder, native.INPUT_SHAPE, spec.augment, spec.cache)
        self.item_shape = self.data.item_shape
        self.classes = self.data.classes or native.CLASSES
        self.records = self.data.records("train")
        self._strategy, self._seed = strategy, seed
        self._batch = spec.batch_per_device * strategy.devices_per_process
        self.content_sha256 = self.data.content_sha256()
        self.next = next
        self.scaled = losses.scaled

    def begin(self, step: int) -> None:
        """Open the stream of batches after some steps."""

        def batches(rank, size):
            return self.data.training_batches(self._batch, self._seed, rank, size, step)

        self.arguments = (self._strategy.iterator(batches),)
