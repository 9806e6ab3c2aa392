"""The engine of TensorFlow with Keras 3: what trains one run in one process."""

import collections
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from dlbench.common import plugins
from dlbench.trainer import engine, schedule
from dlbench.trainer.calibration import Kernels
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.keras import building, flops
from dlbench.trainer.model_flops import ModelFlops
from dlbench.trainer.reading.converted import InputSettings
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import TASKS
from dlbench.trainer.tensorflow import measuring
from dlbench.trainer.tensorflow.pipelines import Source
from dlbench.trainer.tensorflow.step import LOSSES, Step, set_precision
from dlbench.trainer.tensorflow.strategies import Base

MODELS = "keras/models"
ENVIRONMENT = "train"
PACKAGES = ("tensorflow", "keras")
VARIABLES = ("TF_*", "XLA_*", "KERAS_BACKEND")
LEFT_OUT_VARIABLES = ("TF_CONFIG", "TF_CLI_*", "TF_VAR_*", "TF_DATA_DIR")  # the last: Terraform's
INPUTS = ("tf.data",)
OUT_OF_MEMORY = ("ResourceExhaustedError",)
UNSUPPORTED_FIELDS = {
    "compile": "compile is a field of framework pytorch; tensorflow has xla: leave it out"
}
BY_DESIGN = "runs a graph of operations, compiled where xla is true, and decodes JPEGs in threads"


class Engine:
    """See dlbench/trainer/engine.py, which documents the methods."""

    def __init__(self, spec: Spec, strategy: Base, data_folder: str | None):
        building.check_keras("tensorflow")
        seed = engine.seed(spec)
        # Ranks have different seeds: if the broadcast of the weights failed, ranks would differ.
        # TensorFlow's own seed is the same on all ranks, because it orders the data.
        keras.utils.set_random_seed(seed + 1000 * strategy.rank)
        tf.random.set_seed(seed)
        set_precision(spec, strategy.devices)
        if spec.deterministic:
            tf.config.experimental.enable_op_determinism()
        self.strategy, self._spec = strategy, spec
        self.gpu_count = len(tf.config.list_physical_devices("GPU")) if strategy.on_gpus else 0
        self._model_module = plugins.load(MODELS, spec.model)
        self._task, self._losses = TASKS[self._model_module.TASK], LOSSES[self._model_module.TASK]
        scale = self._losses.scaled
        settings = InputSettings(spec, strategy, self._model_module, self._task, scale, seed)
        with strategy.scope():
            self._source = Source(settings, data_folder)
        self.records = self._source.records
        self.data_sha256 = self._source.content_sha256
        self.item_shape = self._source.item_shape

    def build(self) -> None:
        with self.strategy.scope():
            self._model = building.build_model(
                self._spec, self._model_module, self._task, self._source
            )
            weights = self._model.trainable_variables
            self._optimizer = building.make_optimizer(self._spec, weights)
        self.strategy.broadcast([v.value for v in _state(self._model)])
        self.strategy.broadcast([v.value for v in self._optimizer.variables])

    def begin(self, first: int) -> None:
        self._source.begin(first)
        self._step = Step(
            self._spec, self.strategy, self._losses, self._model, self._optimizer, self._source
        )

    def host_batches(self, first: int) -> Iterator[Any]:
        return self._source.on_host(first)

    def trace(self) -> None:
        self._step.trace(
            several=schedule.requested_length(self._spec, self.strategy, bool(self.gpu_count)) != 1
        )

    def step(self, index: int, until: int) -> float:
        return self.window(index, index, until)[0]

    def window(self, first: int, last: int, until: int) -> list[float]:
        return self._step(first, last, until)

    @property
    def learning_rate(self) -> float:
        return self._step.learning_rate

    def evaluate(self) -> dict[str, float]:
        totals: collections.Counter[str] = collections.Counter()
        for inputs, targets in self._held_out:
            totals.update({name: float(sum_) for name, sum_ in self._sums(inputs, targets).items()})
        examples = self._source.data.records("validation")
        return {**self._task.scores(totals), "examples": examples}

    def parameters(self) -> int:
        return self._model.count_params()

    def attention(self) -> str | None:
        return building.attention_kind(self._model, lambda layer: "einsum")

    def model_flops(self) -> ModelFlops:
        return flops.count(self._model, self.item_shape)

    def peak_memory(self) -> engine.Peak:
        def read(device):
            # On a CPU it depends on the CPU whether TensorFlow fails here or answers 0.
            if tf.DeviceSpec.from_string(device).device_type == "CPU":
                return None, None
            # TensorFlow does not tell how much its allocator has reserved.
            return tf.config.experimental.get_memory_info(device)["peak"], None

        return engine.read_peaks(self.strategy.devices, read)

    def checkpoint_state(self) -> CheckpointState:
        replicated, per_rank = building.named_variables(self._model, self._optimizer)
        return CheckpointState(replicated=self._copies(replicated), per_rank=self._copies(per_rank))

    def weights_sha256(self) -> list[str]:
        return self.strategy.weights_sha256([v.value for v in self._model.trainable_variables])

    def gpu_name(self) -> str:
        gpu = tf.config.list_physical_devices("GPU")[0]
        return tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__, "keras": keras.__version__}

    def build_facts(self) -> dict[str, Any]:
        facts = json.dumps(tf.sysconfig.get_build_info(), default=str)
        return {"tensorflow_build": json.loads(facts)}

    def kernels(self) -> Kernels:
        return measuring.Kernels(self._spec, self.strategy)

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        return measuring.traced(work, folder)

    def _copies(self, variables: dict[str, Any]) -> dict[str, list[tf.Variable]]:
        return {name: self.strategy.copies(v.value) for name, v in variables.items()}

    @functools.cached_property
    def _held_out(self) -> Any:
        return self._source.data.validation_batches(engine.EVALUATION_BATCH)

    @functools.cached_property
    def _sums(self) -> Any:
        """A compiled function that computes the task's sums over a batch, on one device."""

        @tf.function(autograph=False, reduce_retracing=True)
        def sums(inputs, targets):
            logits = self._model(self._losses.scaled(inputs), training=False)
            return self._losses.sums(targets, logits)

        return sums


def _state(model: keras.Model) -> list[Any]:
    """The model's variables without the states of its random layers, which differ by rank."""
    return [v for v in model.variables if "seed_generator" not in v.path]
