"""All-reduce by Horovod: one tensor, averaged, with the run's cycle time and compression."""

import horovod.tensorflow as hvd
import tensorflow as tf

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.tensorflow.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The mean of `elements` float32 values over all processes."""
    values = tf.zeros(elements)
    settings = {
        "op": hvd.Average,
        "compression": getattr(hvd.Compression, strategy.options["compression"]),
        "name": f"baseline_{elements}",
    }
    traced = tf.function(lambda: hvd.allreduce(values, **settings)).get_concrete_function()

    def repeat(count: int) -> None:
        for _ in range(count):
            result = traced()
        result[:1].numpy()

    return repeat
