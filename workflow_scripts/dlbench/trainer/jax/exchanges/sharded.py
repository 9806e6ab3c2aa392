"""All-reduce among all devices of a mesh, which XLA puts into the step of strategy sharded."""

import jax
import numpy as np
from jax.sharding import PartitionSpec

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.jax.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all devices."""
    values = strategy.to_devices(np.zeros((strategy.devices_per_process, elements), np.float32))
    mesh = values.sharding.mesh
    reduce = jax.jit(
        jax.shard_map(
            lambda part: jax.lax.psum(part, mesh.axis_names),
            mesh=mesh,
            in_specs=PartitionSpec(*mesh.axis_names),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
    )

    def repeat(count: int) -> None:
        for _ in range(count):
            reduce(values).block_until_ready()  # as a step waits for its loss

    return repeat
