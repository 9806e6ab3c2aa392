"""The sum over the replicas of a tf.distribute strategy: what Keras's optimizer calls."""

from typing import Any

import tensorflow as tf

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.tensorflow.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all devices."""
    values: Any = strategy.constants(lambda: (tf.zeros(elements),))

    def summed(part):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    traced = tf.function(lambda: strategy.run(summed, values)).get_concrete_function()

    def repeat(count: int) -> None:
        for _ in range(count):
            result = traced()
        for part in tf.nest.flatten(result, expand_composites=True):
            part[:1].numpy()

    return repeat
