"""All-reduce among all devices of a mesh, which XLA puts into the step of strategy sharded.

So do programs that shard weights with all-gather and reduce-scatter (psum_scatter), and pipelines
with ppermute.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.jax.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all devices."""
    return _on_mesh(strategy, elements, jax.lax.psum, replicated=True)


def all_gather(strategy: Base, elements: int) -> Repeat:
    """So many values of float32 on each device, of which each has a part."""

    def gathered(part, names):
        return jax.lax.all_gather(part, names, axis=1, tiled=True)

    return _on_mesh(strategy, elements // _devices(strategy), gathered, replicated=True)


def reduce_scatter(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all devices, a part of it on each."""

    def scattered(part, names):
        return jax.lax.psum_scatter(part, names, scatter_dimension=1, tiled=True)

    return _on_mesh(strategy, elements, scattered)


def sendrecv(strategy: Base, elements: int) -> Repeat:
    """So many values of float32 from each device to the next, in a ring."""
    devices = _devices(strategy)
    ring = [(device, (device + 1) % devices) for device in range(devices)]
    return _on_mesh(strategy, elements, lambda part, names: jax.lax.ppermute(part, names, ring))


def _devices(strategy):
    return strategy.size * strategy.devices_per_process


def _on_mesh(
    strategy: Base, elements: int, operation: Callable[[Any, Any], Any], replicated: bool = False
) -> Repeat:
    """Repeat an operation on so many values of each device.

    Args:
        operation: of a device's values, and the names of the axes of the mesh.
        replicated: whether all devices get the same result.
    """
    values = strategy.to_devices(np.zeros((strategy.devices_per_process, elements), np.float32))
    mesh = values.sharding.mesh
    sharded = PartitionSpec(*mesh.axis_names)
    compiled = jax.jit(
        jax.shard_map(
            lambda part: operation(part, mesh.axis_names),
            mesh=mesh,
            in_specs=sharded,
            out_specs=PartitionSpec() if replicated else sharded,
            check_vma=False,
        )
    )

    def repeat(count: int) -> None:
        for _ in range(count):
            compiled(values).block_until_ready()  # as a step waits for its loss

    return repeat
