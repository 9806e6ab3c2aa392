"""All-reduce by Horovod: one tensor, averaged, with the run's cycle time and compression.

An all-gather is what Horovod does with gradients of embeddings; it compresses none.
"""

from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.tensorflow.strategies import Base

LACKS = {"sendrecv": "Horovod has no operation from one process to another"}


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The mean of `elements` float32 values over all processes."""
    values = tf.zeros(elements)
    settings = _averaged(strategy) | {"name": f"baseline_{elements}"}
    return _repeated(lambda: hvd.allreduce(values, **settings))


def all_gather(strategy: Base, elements: int) -> Repeat:
    """`elements` float32 values in each process, of which each has a part."""
    part = tf.zeros(elements // hvd.size())
    return _repeated(lambda: hvd.allgather(part, name=f"baseline_gathered_{elements}"))


def reduce_scatter(strategy: Base, elements: int) -> Repeat:
    """The mean of `elements` float32 values over all processes, a part of it in each."""
    values = tf.zeros(elements)
    settings = _averaged(strategy) | {"name": f"baseline_scattered_{elements}"}
    return _repeated(lambda: hvd.reducescatter(values, **settings))


def _averaged(strategy):
    compression = getattr(hvd.Compression, strategy.options["compression"])
    return {"op": hvd.Average, "compression": compression}


def _repeated(operation: Callable[[], Any]) -> Repeat:
    traced = tf.function(operation).get_concrete_function()

    def repeat(count: int) -> None:
        for _ in range(count):
            result = traced()
        result[:1].numpy()

    return repeat
