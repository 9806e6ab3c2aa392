"""The matrix product and the copy that calibration.py times under JAX."""

import jax
import jax.numpy as jnp
import numpy as np

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.jax.strategies import Base
from dlbench.trainer.reading.reader import DatasetReader
from dlbench.trainer.strategy import Spec

DTYPES = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}


class Kernels:
    """See dlbench/trainer/calibration.py."""

    reader = DatasetReader

    def __init__(self, spec: Spec, strategy: Base):
        self._dtype = DTYPES.get(spec.precision, jnp.float32)
        self._device = strategy.local[0]

    def product(self, size: int) -> Repeat:
        values = jax.random.uniform(jax.random.key(1), (size, size), jnp.float32, -1, 1)
        factor = jax.device_put(values.astype(self._dtype), self._device)
        multiply = jax.jit(jnp.matmul)

        def repeat(count: int) -> None:
            for _ in range(count):
                result = multiply(factor, factor)
            result.block_until_ready()

        return repeat

    def copy(self, elements: int) -> tuple[Repeat, int]:
        add = jax.jit(jnp.add, donate_argnums=0)
        source, self._sums = (
            jax.device_put(jnp.zeros(elements, jnp.float32), self._device) for _ in range(2)
        )

        def repeat(count: int) -> None:
            for _ in range(count):
                self._sums = add(self._sums, source)
            self._sums.block_until_ready()

        return repeat, 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        source = np.zeros(elements, np.float32)

        def repeat(count: int) -> None:
            for _ in range(count):
                copied = jax.device_put(source, self._device)
            copied.block_until_ready()

        return repeat
