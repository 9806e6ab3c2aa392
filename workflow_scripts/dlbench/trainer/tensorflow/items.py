"""Where the items of a run's steps come from: a converted dataset, or made up beforehand.

A source has `item_shape`, `classes`, `records` (of the training split; None: it has no end)
and `content_sha256`; after `begin` also `arguments`, with which the compiled step is called,
`next`, which makes a batch of them there, and `scaled`, what the model gets of its inputs.
"""

import hashlib
import json

import numpy as np
import tensorflow as tf

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer.tensorflow.pipelines import Data


def find(spec, strategy, native, task, data_folder, seed):
    """The source of a run.

    Raises:
        Error: there is no data, or it is of another kind than the model learns.
    """
    if plugins.constants("datasets", spec.dataset)["SYNTHETIC"]:
        return Synthetic(spec, strategy, native, task, seed)
    if data_folder is None:
        raise Error(f"dataset {spec.dataset} is not synthetic: --data must name its folder")
    stored = Stored(spec, strategy, native, task, data_folder, seed)
    kind = stored.data.manifest["kind"]
    if kind != task.KIND:
        raise Error(
            f"model {spec.model} learns {native.TASK} and needs data of the kind {task.KIND}; "
            f"{spec.dataset} is of the kind {kind}"
        )
    return stored


class Synthetic:
    """Random items in the model's native shape, the same in every step and scaled beforehand."""

    def __init__(self, spec, strategy, native, task, seed):
        self.item_shape, self.classes = native.INPUT_SHAPE, native.CLASSES
        self.records = None
        self.content_sha256 = None
        items = task.synthetic(
            np.random.default_rng(seed + strategy.rank),
            spec.batch_per_device,
            self.item_shape,
            self.classes,
        )
        self.arguments = ()
        self._strategy, self._task, self._items = strategy, task, items

    @staticmethod
    def scaled(inputs):
        return inputs

    def begin(self, step):
        """Put the items where they are used; every step has the same."""
        inputs, targets = self._items
        constants = self._strategy.constants(
            lambda: (self._task.scaled(tf.constant(inputs)), tf.constant(targets))
        )
        if isinstance(constants, tuple):
            self.next = lambda: constants
        else:
            self.arguments, self.next = (constants,), next


class Stored:
    """The items of a converted dataset, in an order fixed by the seed."""

    def __init__(self, spec, strategy, native, task, folder, seed):
        self.data = Data(folder, native.INPUT_SHAPE, spec.augment, spec.cache)
        self.item_shape = self.data.item_shape
        self.classes = self.data.classes or native.CLASSES
        self.records = self.data.records("train")
        self._strategy, self._seed = strategy, seed
        self._batch = spec.batch_per_device * strategy.devices_per_process
        # Of what the manifest says of all shards, digests among it.
        listed = json.dumps(self.data.manifest["splits"], sort_keys=True)
        self.content_sha256 = hashlib.sha256(listed.encode()).hexdigest()
        self.arguments, self.next = None, next
        self.scaled = task.scaled

    def begin(self, step):
        """Open the stream of batches after some steps."""

        def batches(rank, size):
            return self.data.training_batches(self._batch, self._seed, rank, size, step)

        self.arguments = (self._strategy.iterator(batches),)
