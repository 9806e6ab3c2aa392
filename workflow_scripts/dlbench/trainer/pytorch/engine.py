"""The engine of PyTorch: what trains one run in one process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from dlbench import Error
from dlbench.common import plugins
from dlbench.trainer import engine, updates
from dlbench.trainer.array_engine import ArrayEngine
from dlbench.trainer.calibration import Kernels
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.model_flops import ModelFlops
from dlbench.trainer.pytorch import building, flops, measuring, step
from dlbench.trainer.pytorch.loading import DataLoaderReader
from dlbench.trainer.pytorch.step import Step, check_compiling, check_model, set_precision
from dlbench.trainer.pytorch.strategies import Base
from dlbench.trainer.strategy import Spec

ENVIRONMENT = "pytorch"
PACKAGES = ("torch",)
VARIABLES = ("TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*")
INPUTS = ("dlbench", "torch", "grain")
OUT_OF_MEMORY = (
    "OutOfMemoryError: ",
    "RuntimeError: [enforce fail at alloc_cpu.cpp",
    "RuntimeError: CUDA error: out of memory",
)
BY_DESIGN = (
    "does one operation after the other, compiled where compile is true, and decodes JPEGs in "
    "processes"
)
UNSUPPORTED_FIELDS = {
    "xla": "framework pytorch does not compile with XLA: leave xla out, or say compile: true"
}


class Engine(ArrayEngine):
    """See dlbench/trainer/engine.py, which documents the methods."""

    LOSSES = step.LOSSES
    READERS = {**ArrayEngine.READERS, "torch": DataLoaderReader}
    strategy: Base

    def __init__(self, spec: Spec, strategy: Base, data_folder: str | None):
        # Ranks have different seeds: each batch has its own dropout, and if the broadcast of the
        # weights failed, ranks would differ.
        torch.manual_seed(engine.seed(spec) + 1000 * (strategy.rank // strategy.ranks_per_batch))
        set_precision(spec, strategy)
        check_compiling(spec, strategy)
        super().__init__(spec, strategy, _model_file(spec), data_folder)

    def build(self) -> None:
        model = building.build_model(
            self._spec, self._model_module, self._task, self._source, self.strategy.device
        )
        check_model(self._spec, model)
        # Counted before a strategy shards the weights.
        calls: list[dict[str, Any]] = []  # of attention
        self._flops = flops.count(model, self.item_shape, calls)
        self._parameters = sum(tensor.numel() for _, tensor in building.named_weights(model))
        self._attention = (
            flops.attention_kernel(calls[0], self._spec, self.strategy.device) if calls else None
        )
        self.strategy.tokens = calls[0]["query"].shape[-2] if calls else None
        self._step = Step(self._spec, self.strategy, self._losses, model, self._source.scaled)
        self._set_learning_rate(
            updates.scaled_learning_rate(self._spec, self._schedule.global_batch)
        )

    def trace(self) -> None:
        """Do nothing: torch.compile compiles a function in its first call."""

    def parameters(self) -> int:
        return self._parameters

    def attention(self) -> str | None:
        return self._attention

    def model_flops(self) -> ModelFlops:
        return self._flops

    def peak_memory(self) -> engine.Peak:
        if not self.gpu_count:
            return engine.NOT_COUNTED
        cuda = torch.cuda
        return engine.read_peaks(
            [self.strategy.device],
            lambda device: (cuda.max_memory_allocated(device), cuda.max_memory_reserved(device)),
        )

    def checkpoint_state(self) -> CheckpointState:
        state, writer = self._step.checkpoint_state(), self._spec.checkpoint_writer
        if writer == "numpy":
            return state
        from dlbench.trainer.pytorch.dcp import Writer  # it takes a second to import

        return state._replace(writer=Writer(state, self.strategy, writer == "dcp_async"))

    def weights_sha256(self) -> list[str]:
        return self.strategy.weights_sha256(list(self._step.model.parameters()))

    def gpu_name(self) -> str:
        return torch.cuda.get_device_name(self.strategy.device)

    def versions(self) -> dict[str, str]:
        versions = {"pytorch": torch.__version__}
        if self.gpu_count:
            versions["cuda"] = torch.version.cuda or torch.version.hip or "unknown"
            versions["cudnn"] = str(torch.backends.cudnn.version())
        return versions

    def build_facts(self) -> dict[str, Any]:
        return {
            "pytorch_build": {
                "git_version": torch.version.git_version,
                "cuda": torch.version.cuda,
                "cpu_capability": torch.backends.cpu.get_cpu_capability(),
                "mkldnn": torch.backends.mkldnn.is_available(),
                "openmp": torch.backends.openmp.is_available(),
                "fp32_precision": torch.backends.fp32_precision,
                "cudnn_benchmark": torch.backends.cudnn.benchmark,
            }
        }

    def _launch_step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._step(inputs, targets)

    def _wait(self, losses: list[torch.Tensor]) -> list[float]:
        return [losses[0].item()] if len(losses) == 1 else torch.stack(losses).tolist()

    def _sums(self) -> Callable[[Any, Any], Mapping[str, Any]]:
        to_devices = self.strategy.to_devices
        return lambda inputs, targets: self._step.sums(to_devices(inputs), to_devices(targets))

    def kernels(self) -> Kernels:
        return measuring.Kernels(self._spec, self.strategy)

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        return measuring.traced(work, folder, bool(self.gpu_count))

    def _set_learning_rate(self, rate: float) -> None:
        self.learning_rate = rate
        self._step.set_learning_rate(rate)


def _model_file(spec: Spec) -> Any:
    """The module of a run's model. Raises Error: it imports a package that is not installed."""
    try:
        return plugins.load("pytorch/models", spec.model)
    except ModuleNotFoundError as error:
        raise Error(
            f"models/{spec.model}.py needs the package {error.name}, which is not installed: a "
            "model of framework pytorch is a torch.nn.Module, see docs/adding.md"
        ) from error
