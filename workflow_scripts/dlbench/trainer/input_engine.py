"""The engine of a run of mode `input`: it reads batches and trains nothing.

- A step takes the next batch from the run's reader and discards it. It ends when the batch is in
  host memory, without a copy to a device.
- The framework's own engine opens the data and knows the devices. It builds no model and no step.
- As in other modes the first batch is taken before the first step.
- The processes of a run read independently; none waits for another between two steps.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlbench.trainer import device_memory, engine
from dlbench.trainer.calibration import Kernels
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.model_flops import ModelFlops

NO_LOSS = 0.0  # each step of a log has a loss


class InputEngine(engine.Engine):
    """See dlbench/trainer/engine.py, which documents the methods.

    Args:
        inner: the engine of the run's framework; its `build` is never called.
    """

    learning_rate = 0.0

    def __init__(self, inner: engine.Engine):
        self._inner = inner
        self.strategy, self.gpu_count = inner.strategy, inner.gpu_count
        self.records, self.data_sha256 = inner.records, inner.data_sha256
        self.item_shape = inner.item_shape
        self._batches: Iterator[Any] = iter(())

    def build(self) -> None:
        """Nothing."""

    def begin(self, first: int) -> None:
        self._batches = self._inner.host_batches(first)
        next(self._batches)

    def host_batches(self, first: int) -> Iterator[Any]:
        return self._inner.host_batches(first)

    def trace(self) -> None:
        """Nothing."""

    def step(self, index: int, until: int) -> float:
        next(self._batches)
        return NO_LOSS

    def evaluate(self) -> dict[str, float]:
        raise NotImplementedError("mode input has no model to evaluate")

    def parameters(self) -> None:
        return None

    def attention(self) -> None:
        return None

    def model_flops(self) -> ModelFlops:
        return ModelFlops(None, None, ["mode input has no model"])

    def peak_memory(self) -> device_memory.Peak:
        return self._inner.peak_memory()

    def checkpoint_state(self) -> CheckpointState:
        return CheckpointState({}, {})  # the position in the data follows from the step

    def weights_sha256(self) -> list[str]:
        return []

    def gpu_name(self) -> str:
        return self._inner.gpu_name()

    def versions(self) -> dict[str, str]:
        return self._inner.versions()

    def kernels(self) -> Kernels:
        return self._inner.kernels()

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        raise NotImplementedError("mode input computes nothing")

    def build_facts(self) -> dict[str, Any]:
        return self._inner.build_facts()
