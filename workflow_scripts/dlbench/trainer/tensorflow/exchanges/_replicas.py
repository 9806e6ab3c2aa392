"""Sum and gathering over the replicas of a tf.distribute strategy, as Keras's optimizer sums."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.tensorflow.strategies import Base

LACKS = {
    "reduce_scatter": "tf.distribute has no reduce-scatter",
    "sendrecv": "tf.distribute has no operation from one device to another",
}


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all devices."""

    def summed(part):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    return _on_replicas(strategy, elements, summed)


def all_gather(strategy: Base, elements: int) -> Repeat:
    """So many values of float32 on each device, of which each has a part."""
    devices = strategy.size * strategy.devices_per_process

    def gathered(part):
        return tf.distribute.get_replica_context().all_gather(part, axis=0)

    return _on_replicas(strategy, elements // devices, gathered)


def _on_replicas(strategy: Base, elements: int, operation: Callable[[Any], Any]) -> Repeat:
    """Repeat an operation on so many values of each replica."""
    values: Any = strategy.constants(lambda: (tf.zeros(elements),))
    traced = tf.function(lambda: strategy.run(operation, values)).get_concrete_function()

    def repeat(count: int) -> None:
        for _ in range(count):
            result = traced()
        for part in tf.nest.flatten(result, expand_composites=True):
            part[:1].numpy()

    return repeat
