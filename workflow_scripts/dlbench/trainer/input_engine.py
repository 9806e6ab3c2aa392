"""The engine of a run of mode `input`: it reads batches and trains nothing.

- A step takes the next batch from the run's reader and discards it. It ends when the batch is in
  host memory, without a copy to a device.
- The framework's own engine opens the data and knows the devices. It builds no model and no step.
- As in other modes the first batch is taken before the first step.
- The processes of a run read independently; none waits for another between two steps.
"""

from collections.abc import Callable, Iterator
from typing import Any

from dlbench.trainer.engine import CheckpointState, Engine
from dlbench.trainer.model_flops import ModelFlops

NO_LOSS = 0.0  # each step of a log has a loss


def reading_only(of_framework: type[Any]) -> type[Any]:
    """The class of a framework's engine, but its objects only read."""
    return type("InputEngine", (_Reading, of_framework), {})


class _Reading:
    """What is other than in trainer/engine.py, which documents the methods."""

    learning_rate = 0.0
    host_batches: Callable[[int], Iterator[Any]]

    def build(self) -> None:
        """Nothing."""

    def begin(self, first: int) -> None:
        self._batches = self.host_batches(first)
        next(self._batches)

    def trace(self) -> None:
        """Nothing."""

    def step(self, index: int, until: int) -> float:
        next(self._batches)
        return NO_LOSS

    window = Engine.window

    def parameters(self) -> None:
        return None

    def attention(self) -> None:
        return None

    def model_flops(self) -> ModelFlops:
        return ModelFlops(None, None, ["mode input has no model"])

    def checkpoint_state(self) -> CheckpointState:
        return CheckpointState({}, {})  # the position in the data follows from the step

    def weights_sha256(self) -> list[str]:
        return []
