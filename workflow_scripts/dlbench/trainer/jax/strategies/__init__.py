"""Strategies of JAX, one file each: how the work of a step is distributed over devices.

A strategy file defines a class `Strategy` on `Base` below. The workflow, whose environment lacks
JAX, reads the attributes of the class; only the trainer makes instances. So JAX is imported inside
the methods.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.trainer.strategy import BaseStrategy, Spec, digest

# Flags of XLA as jaxlib sets them: it has no call that tells them. But the options that it gives a
# compiler have all, as a message of Protocol Buffers, and the numbers of a message's fields never
# change. Sources: OpenXLA, xla/pjrt/proto/compile_options.proto and xla/xla.proto.
# executable_build_options of CompileOptionsProto, their debug_options, and the flag of these.
LATENCY_HIDING_SCHEDULER = (3, 3, 186)
Array = Any  # JAX's own: it is not imported yet
# For a device's shard of a batch: (state, inputs, targets) -> (state, loss, gradients).
Function = Callable[..., Any]


class Base(BaseStrategy):
    """One process on one device; the other strategies change that."""

    devices_per_copy = 1  # that share a copy of the weights
    shardings: Any = None  # those of the arrays of a step's state

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        os.environ["KERAS_BACKEND"] = "jax"  # read when Keras is imported
        given = os.environ.get("XLA_FLAGS", "")
        if given:
            _check_xla_flags(given)
        # Read when JAX looks for devices.
        os.environ["XLA_FLAGS"] = " ".join([given, *_xla_flags(spec, device)]).strip()
        super().__init__(spec, device, folder)

    def settings(self) -> dict[str, Any]:
        # JAX's own names. Without these variables it allocates 3/4 of a GPU before the first step.
        allocates = {
            name: os.environ[name]
            for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_CLIENT_MEM_FRACTION")
            if name in os.environ
        }
        flags: dict[str, Any] = {"xla_flags": os.environ["XLA_FLAGS"]}
        if self.on_gpus:
            flags["latency_hiding_scheduler"] = latency_hiding_scheduler()
        return {**self.options, **allocates, **flags}

    def broadcast(self, values: Sequence[Any]) -> list[Any]:
        """The values that rank 0 has."""
        return list(values)

    def divide(self, model: Any, optimizer: Any) -> dict[int, int]:
        """Axes of the variables that devices share, by their identity; the others are replicated.

        Called once, before the values of the variables are taken.
        """
        return {}

    def placed(self, values: Sequence[Any], axes: Sequence[int | None]) -> list[Array]:
        """Put values, which all processes have, on the devices of the run: see `divide`."""
        import jax

        return [jax.device_put(value, self.local[0]) for value in values]

    def to_devices(self, values: Any) -> Array:
        """An array over the devices of the run: the items of this process, sharded over its own."""
        import jax

        return jax.device_put(values, self.local[0])

    def prefetch_to_devices(
        self, batches: Iterator[tuple[np.ndarray, ...]]
    ) -> Iterator[tuple[Array, ...]]:
        """Batches on the devices; JAX copies while they compute, and does not wait for a copy."""
        return (tuple(map(self.to_devices, batch)) for batch in batches)

    def parallelize(self, function: Function) -> Function:
        """Transform a function of a batch so that each device computes its shard of the batch."""
        return function

    def mean(self, values: Any) -> Any:
        """The means of arrays over all devices; called inside the function of `parallelize`."""
        return values

    def weights_sha256(self, arrays: Sequence[Array]) -> list[str]:
        """One digest of all weights for each device of this process."""
        return [
            digest(self.whole(array, first) for array in arrays)
            for first in range(0, len(self.local), self.devices_per_copy)
            for _ in range(self.devices_per_copy)
        ]

    def whole(self, array: Array, first: int = 0) -> np.ndarray:
        """The copy of an array that the devices of this process from a number on share."""
        devices = self.local[first : first + self.devices_per_copy]
        values = np.empty(array.shape, array.dtype)
        for shard in array.addressable_shards:
            if shard.device in devices:
                values[shard.index] = shard.data
        return values

    def _configure(self, device, threads_per_device):
        """Make JAX use exactly the devices of this process, and return their names."""
        import jax

        # With programs of earlier runs from a cache, compile times would be too short.
        jax.config.update("jax_enable_compilation_cache", False)
        if device == "cpu":
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", self.devices_per_process)
        self._connect()
        try:
            seen = jax.local_devices(backend=device)
        except RuntimeError as error:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
            raise Error(
                f"JAX finds no GPU (CUDA_VISIBLE_DEVICES={visible}; "
                f"{str(error).splitlines()[0]}): its environment needs jax[cuda12] or "
                "jax[cuda13], the machine a driver that fits, and CUDA_VISIBLE_DEVICES must name "
                "GPUs that are there; why a plugin of JAX failed, JAX says before this"
            ) from error
        self.gpu_count = len(seen) if device == "gpu" else 0
        # Of several processes each sees only its own GPUs: `_connect` gave JAX their numbers.
        alone = device == "gpu" and self.size == 1
        self.local = self.select_gpus(seen) if alone else seen[: self.devices_per_process]
        jax.config.update("jax_default_device", self.local[0])
        return [str(device) for device in self.local]

    def _connect(self):
        """Connect to the other processes, before JAX looks for devices."""


def _xla_flags(spec, device):
    """Flags of XLA that make a device compute as under other frameworks."""
    flags = []
    if device == "cpu" and spec.threads_per_device == 1:
        # Otherwise each operation waits for a thread pool that has no other core.
        flags.append("--xla_cpu_multi_thread_eigen=false")
    if device == "gpu" and spec.deterministic:
        flags.append("--xla_gpu_deterministic_ops=true")
    return flags


def _check_xla_flags(flags):
    """Check in another process that XLA accepts the user's flags: it aborts if it does not."""
    program = "import jax; jax.devices()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        reason = next((line for line in lines if "XLA_FLAGS" in line), lines[-1])
        raise Error(f"XLA does not take XLA_FLAGS={flags}: {reason}")


def latency_hiding_scheduler() -> bool | None:
    """Whether xla_gpu_enable_latency_hiding_scheduler is set; None if jaxlib does not tell.

    The scheduler has devices compute while they exchange. Without the flag XLA uses it only where
    jax_optimization_level or jax_exec_time_optimization_effort asks for it.
    """
    try:
        from jaxlib import xla_client

        value = field(xla_client.CompileOptions().SerializeAsString(), LATENCY_HIDING_SCHEDULER)
    except Exception:  # of any version of jaxlib, whose Python interface is internal
        return None
    return bool(value) if isinstance(value, int) else None


def field(message: bytes, path: Sequence[int]) -> int | bytes | None:
    """The field of a message to which a path of numbers leads, or of messages in it; None: not set.

    >>> field(bytes([8, 150, 1]), [1])
    150
    >>> field(bytes([26, 2, 16, 1]), [3, 2])
    1

    Raises ValueError, IndexError: this is no message.
    """
    value: int | bytes | None = message
    for number in path:
        if not isinstance(value, bytes):
            raise ValueError(f"field {number} of {path}: expected a message, found {value!r}")
        value = next(
            (content for found, content in tfrecord.fields(value) if found == number), None
        )
        if value is None:
            return None
    return value
