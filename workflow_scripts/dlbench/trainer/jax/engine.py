"""The engine of JAX with Keras 3: what trains one run in one process."""

import collections
import contextlib
import functools
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from dlbench.common import plugins
from dlbench.trainer import engine, updates
from dlbench.trainer.array_engine import ArrayEngine
from dlbench.trainer.calibration import Kernels
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.jax import measuring, step
from dlbench.trainer.jax.step import State, make_step, make_sums, set_precision
from dlbench.trainer.jax.strategies import Base
from dlbench.trainer.keras import building, flops
from dlbench.trainer.model_flops import ModelFlops
from dlbench.trainer.strategy import Spec

MODELS = "keras/models"
ENVIRONMENT = "jax"
PACKAGES = ("jax", "keras")
VARIABLES = ("JAX_*", "XLA_*", "KERAS_BACKEND")
LEFT_OUT_VARIABLES = ("JAX_COORDINATOR_*",)
INPUTS = ("dlbench", "grain")
OUT_OF_MEMORY = ("XlaRuntimeError: RESOURCE_EXHAUSTED", "JaxRuntimeError: RESOURCE_EXHAUSTED")
BY_DESIGN = "compiles each step as a whole, and decodes JPEGs in processes"
# JAX would launch all steps of a window at once, and keep the batch of each in device memory.
STEPS_AHEAD = 2  # steps launched on a GPU before the host waits for an earlier one
UNSUPPORTED_FIELDS = {
    "xla": "framework jax compiles every step with XLA: xla true says nothing; leave it out",
    "compile": "compile is a field of framework pytorch; jax compiles every step: leave it out",
}


class Engine(ArrayEngine):
    """See dlbench/trainer/engine.py, which documents the methods."""

    LOSSES = step.LOSSES
    strategy: Base

    def __init__(self, spec: Spec, strategy: Base, data_folder: str | None):
        building.check_keras("jax")
        # Ranks have different seeds: if the broadcast of the weights failed, ranks would differ.
        keras.utils.set_random_seed(engine.seed(spec) + 1000 * strategy.rank)
        set_precision(spec, strategy)
        self._launched: collections.deque[jax.Array] = collections.deque()  # losses of steps
        super().__init__(spec, strategy, plugins.load(MODELS, spec.model), data_folder)

    def build(self) -> None:
        with _compiling_quickly():
            self._model = building.build_model(
                self._spec, self._model_module, self._task, self._source
            )
            weights = self._model.trainable_variables
            self._optimizer = building.make_optimizer(self._spec, weights)
        self._variables = State(
            self._model.trainable_variables,
            self._model.non_trainable_variables,
            self._optimizer.variables,
        )
        axes = self.strategy.divide(self._model, self._optimizer)
        self._axes = State(*([axes.get(id(v)) for v in group] for group in self._variables))
        self._state = State(
            *(
                self.strategy.placed(self.strategy.broadcast([v.value for v in group]), of_group)
                for group, of_group in zip(self._variables, self._axes, strict=True)
            )
        )
        self.strategy.shardings = jax.tree.map(lambda array: array.sharding, self._state)
        self._set_learning_rate(
            updates.scaled_learning_rate(self._spec, self._schedule.global_batch)
        )

    def begin(self, first: int) -> None:
        super().begin(first)
        self._function = make_step(
            self._spec,
            self.strategy,
            self._losses,
            self._model,
            self._optimizer,
            self._source.scaled,
        )

    def trace(self) -> None:
        self._step = self._function.lower(self._state, *self._batch).compile()

    def parameters(self) -> int:
        return self._model.count_params()

    def attention(self) -> str | None:
        batch = self._spec.batch_per_device // self._spec.accumulate_steps
        learns = self._spec.mode != "forward"
        return building.attention_kind(
            self._model, lambda layer: measuring.attention_kernel(layer, batch, learns)
        )

    def model_flops(self) -> ModelFlops:
        return flops.count(self._model, self.item_shape)

    def peak_memory(self) -> engine.Peak:
        def read(device):
            stats = device.memory_stats() or {}  # None of a CPU
            return stats.get("peak_bytes_in_use"), stats.get("peak_pool_bytes")

        peak = engine.read_peaks(self.strategy.local, read)
        if peak.allocated is None:
            return peak
        stats = [device.memory_stats() or {} for device in self.strategy.local]
        limits = [each.get("bytes_limit") for each in stats]
        return peak._replace(limit=min(filter(None, limits), default=None))

    def checkpoint_state(self) -> CheckpointState:
        replicated, per_rank = (
            {name: [_StateArray(self, *self._places[id(v)])] for name, v in variables.items()}
            for variables in building.named_variables(self._model, self._optimizer)
        )
        return CheckpointState(replicated, per_rank)

    def weights_sha256(self) -> list[str]:
        return self.strategy.weights_sha256(self._state.trained)

    def gpu_name(self) -> str:
        return self.strategy.local[0].device_kind

    def versions(self) -> dict[str, str]:
        return {
            "jax": jax.__version__,
            "jaxlib": importlib.metadata.version("jaxlib"),
            "keras": keras.__version__,
        }

    def build_facts(self) -> dict[str, Any]:
        return {
            "jax_build": {
                "platform": self.strategy.local[0].client.platform_version,
                "xla_flags": os.environ.get("XLA_FLAGS", ""),
                "matmul_precision": jax.config.jax_default_matmul_precision,
            }
        }

    def kernels(self) -> Kernels:
        return measuring.Kernels(self._spec, self.strategy)

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        return measuring.traced(work, folder)

    def array(self, field: int, number: int) -> jax.Array:
        """One array of the state: that with a number in the list that a field of State is."""
        return self._state[field][number]

    def set_array(self, field: int, number: int, value: np.ndarray) -> None:
        """Replace an array of the state on all devices."""
        axis = self._axes[field][number]
        (self._state[field][number],) = self.strategy.placed([value], [axis])

    def _launch_step(self, inputs: Any, targets: Any) -> Any:
        self._state, loss, _ = self._step(self._state, inputs, targets)
        if self.gpu_count:
            self._launched.append(loss)
            if len(self._launched) > STEPS_AHEAD:
                self._launched.popleft().block_until_ready()
        return loss

    def _wait(self, losses: list[Any]) -> list[float]:
        if len(losses) == 1:  # device_get takes 20 us longer on a CPU
            return [losses[0].item()]
        return [float(loss) for loss in jax.device_get(losses)]

    def _sums(self) -> Callable[[Any, Any], Mapping[str, Any]]:
        alone = self.strategy.devices_per_copy == 1
        of_first = (lambda a: a.addressable_data(0)) if alone else self._whole
        state = jax.tree.map(of_first, self._state)
        return functools.partial(self._sums_of, state)

    def _set_learning_rate(self, rate: float) -> None:
        self.learning_rate = rate
        # The optimizer that scales the loss has a learning rate too, which has no effect.
        optimizer = getattr(self._optimizer, "inner_optimizer", self._optimizer)
        place = self._places[id(optimizer.learning_rate)]
        with np.errstate(over="ignore"):  # infinite, as under TensorFlow
            self.set_array(*place, np.asarray(rate).astype(self.array(*place).dtype))

    def _whole(self, array: jax.Array) -> jax.Array:
        return jax.device_put(self.strategy.whole(array), self.strategy.local[0])

    @functools.cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """(field, number) of each of Keras's variables in the state, by the variable's identity."""
        return {
            id(variable): (field, number)
            for field, variables in enumerate(self._variables)
            for number, variable in enumerate(variables)
        }

    @functools.cached_property
    def _sums_of(self) -> Any:
        return make_sums(self._losses, self._model)


@contextlib.contextmanager
def _compiling_quickly():
    """Compile without most optimizations, for programs that run once, such as initializers.

    Those of U-Net's weights compile in 5 s this way, and in 22 s with all optimizations.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


class _StateArray:
    """One array of the state, which a checkpoint reads and sets."""

    def __init__(self, engine: Engine, field: int, number: int):
        self._engine, self._field, self._number = engine, field, number

    @property
    def shape(self) -> tuple[int, ...]:
        return self._engine.array(self._field, self._number).shape

    def numpy(self) -> np.ndarray:
        return self._engine.strategy.whole(self._engine.array(self._field, self._number))

    def assign(self, value: np.ndarray) -> None:
        self._engine.set_array(self._field, self._number, value)
