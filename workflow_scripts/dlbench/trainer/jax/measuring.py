"""What is measured under JAX beside a run: attention's kernel, the machine's rates, a trace."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import PartitionSpec

from dlbench.trainer import profiling
from dlbench.trainer.calibration import Repeat, repeated
from dlbench.trainer.jax.strategies import Base
from dlbench.trainer.profiling import Track
from dlbench.trainer.reading.reader import DatasetReader
from dlbench.trainer.strategy import Spec

CUDNN = "__cudnn$fmha"  # how the targets of calls of cuDNN's attention begin
DTYPES = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}


def attention_kernel(layer: keras.Layer, batch: int, learns: bool) -> str:
    """Which kernel computes the attention of a layer: cudnn, xla, or unknown.

    Keras decides between cuDNN's kernel and XLA's products when it traces the call, by shapes,
    dtype and device: a layer is lowered for the run's batch, with gradient if the run takes
    gradients. cuDNN's kernel is then a call in that program; XLA neither removes nor adds one.
    Lowering compiles nothing and allocates nothing. The layer calls keras.ops.dot_product_attention
    and has one input.
    """
    inputs = getattr(layer, "input", None)
    if not isinstance(inputs, keras.KerasTensor):  # of a model without a graph of its layers
        return "unknown"

    def total(x):
        return layer(x).astype("float32").sum()

    x = jax.ShapeDtypeStruct((batch, *inputs.shape[1:]), layer.compute_dtype)
    lowered = jax.jit(jax.grad(total) if learns else total).lower(x)
    return kernel_in(lowered.as_text())


def kernel_in(program: str) -> str:
    """The kernel of attention in a lowered program, in which cuDNN's is a custom call."""
    return "cudnn" if CUDNN in program else "xla"


class Kernels:
    """See dlbench/trainer/calibration.py."""

    reader = DatasetReader

    def __init__(self, spec: Spec, strategy: Base):
        self._dtype = DTYPES.get(spec.precision, jnp.float32)
        self._device, self._strategy = strategy.local[0], strategy

    def product(self, size: int) -> Repeat:
        values = jax.random.uniform(jax.random.key(1), (size, size), jnp.float32, -1, 1)
        factor = jax.device_put(values.astype(self._dtype), self._device)
        multiply = jax.jit(jnp.matmul)
        return repeated(lambda: multiply(factor, factor), jax.block_until_ready)

    def copy(self, elements: int) -> tuple[Repeat, int]:
        add = jax.jit(jnp.add, donate_argnums=0)
        source, self._sums = (
            jax.device_put(jnp.zeros(elements, jnp.float32), self._device) for _ in range(2)
        )

        def once():
            self._sums = add(self._sums, source)
            return self._sums

        return repeated(once, jax.block_until_ready), 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        source = np.zeros(elements, np.float32)
        return repeated(lambda: jax.device_put(source, self._device), jax.block_until_ready)

    def collective(self, name: str, elements: int) -> Repeat:
        """Among all devices of a mesh; psum is what XLA puts into the step of strategy sharded.

        Programs that shard weights have all_gather and psum_scatter, pipelines have ppermute.
        """
        strategy = self._strategy
        devices = strategy.size * strategy.devices_per_process
        ring = [(device, (device + 1) % devices) for device in range(devices)]
        operation = {
            "all_reduce": jax.lax.psum,
            "all_gather": lambda part, axes: jax.lax.all_gather(part, axes, axis=1, tiled=True),
            "reduce_scatter": lambda values, axes: jax.lax.psum_scatter(
                values, axes, scatter_dimension=1, tiled=True
            ),
            "sendrecv": lambda values, axes: jax.lax.ppermute(values, axes, ring),
        }[name]
        each = elements // devices if name == "all_gather" else elements
        values = strategy.to_devices(np.zeros((strategy.devices_per_process, each), np.float32))
        mesh = values.sharding.mesh
        sharded = PartitionSpec(*mesh.axis_names)
        replicates = name in ("all_reduce", "all_gather")  # all devices get the same result
        compiled = jax.jit(
            jax.shard_map(
                lambda part: operation(part, mesh.axis_names),
                mesh=mesh,
                in_specs=sharded,
                out_specs=PartitionSpec() if replicates else sharded,
                check_vma=False,
            )
        )
        # As a step waits for its loss.
        return repeated(lambda: compiled(values).block_until_ready(), lambda _: None)


def traced(work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
    """The trace of `work` as Engine.profile returns it; the folder is for the profiler's files."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # calls of Python functions would be most of the trace
    with jax.profiler.trace(str(folder), profiler_options=options):
        work()
    (path,) = folder.rglob("*.xplane.pb")
    return profiling.chrome(_tracks(jax.profiler.ProfileData.from_file(str(path))))


def _tracks(data: Any) -> Iterator[Track]:
    for plane in data.planes:
        for line in plane.lines:
            events = [
                (event.name, round(1000 * event.start_ns), round(1000 * event.duration_ns), values)
                for event in line.events
                for values in [dict(event.stats)]
            ]
            yield Track(plane.name, line.name, events)
