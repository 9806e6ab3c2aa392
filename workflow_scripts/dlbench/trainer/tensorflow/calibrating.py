"""The matrix product and the copy that calibration.py times under TensorFlow."""

import tensorflow as tf

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.pipelines import Data
from dlbench.trainer.tensorflow.strategies import Base

DTYPES = {"bfloat16": tf.bfloat16, "float16": tf.float16}


class Kernels:
    """See dlbench/trainer/calibration.py."""

    reader = Data

    def __init__(self, spec: Spec, strategy: Base):
        self._dtype = DTYPES.get(spec.precision, tf.float32)
        self._device = strategy.devices[0]

    def product(self, size: int) -> Repeat:
        with tf.device(self._device):
            factor = tf.cast(tf.random.uniform((size, size), -1.0, 1.0), self._dtype)

        def repeat(count: int) -> None:
            with tf.device(self._device):
                for _ in range(count):
                    result = tf.linalg.matmul(factor, factor)
                result[0, 0].numpy()

        return repeat

    def copy(self, elements: int) -> tuple[Repeat, int]:
        with tf.device(self._device):
            source, sums = tf.zeros(elements), tf.Variable(tf.zeros(elements))

        def repeat(count: int) -> None:
            with tf.device(self._device):
                for _ in range(count):
                    sums.assign_add(source)
                sums[0].numpy()

        return repeat, 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        with tf.device("CPU:0"):
            source = tf.zeros(elements)

        def repeat(count: int) -> None:
            with tf.device(self._device):
                for _ in range(count):
                    copied = tf.identity(source)
                copied[0].numpy()

        return repeat
