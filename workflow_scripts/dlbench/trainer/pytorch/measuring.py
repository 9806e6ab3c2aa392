"""What is measured under PyTorch beside a run: the machine's rates, and a trace of steps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from dlbench.trainer.calibration import Repeat, repeated
from dlbench.trainer.pytorch.step import AUTOCAST
from dlbench.trainer.pytorch.strategies import Base
from dlbench.trainer.reading.reader import DatasetReader
from dlbench.trainer.strategy import Spec


class Kernels:
    """See dlbench/trainer/calibration.py."""

    reader = DatasetReader

    def __init__(self, spec: Spec, strategy: Base):
        self._dtype, self._device = AUTOCAST.get(spec.precision, torch.float32), strategy.device

    def product(self, size: int) -> Repeat:
        factor = torch.rand((size, size), device=self._device).to(self._dtype)
        result = torch.empty_like(factor)
        return repeated(lambda: torch.mm(factor, factor, out=result), lambda _: result[0, 0].item())

    def copy(self, elements: int) -> tuple[Repeat, int]:
        source, sums = (torch.zeros(elements, device=self._device) for _ in range(2))
        return repeated(lambda: sums.add_(source), lambda _: sums[0].item()), 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        source, copied = torch.zeros(elements), torch.zeros(elements, device=self._device)
        if copied.is_cuda:  # from pageable memory CUDA would copy through a staging buffer
            source = source.pin_memory()
        return repeated(lambda: copied.copy_(source, non_blocking=True), lambda _: copied[0].item())

    def collective(self, name: str, elements: int) -> Repeat:
        """By torch.distributed, which DistributedDataParallel calls for each of its buckets.

        FSDP gathers weights and reduce-scatters gradients: either moves half as many bytes as an
        all-reduce, by which the scaling that is expected is computed. Pipelines send and receive.
        """
        rank, size = distributed.get_rank(), distributed.get_world_size()
        whole = torch.zeros(elements, device=self._device)
        others = elements if name == "sendrecv" else elements // size
        other = torch.zeros(others, device=self._device)

        def exchange():
            both = [
                distributed.P2POp(distributed.isend, whole, (rank + 1) % size),
                distributed.P2POp(distributed.irecv, other, (rank - 1) % size),
            ]
            for work in distributed.batch_isend_irecv(both):
                work.wait()

        operation, result = {
            "all_reduce": (lambda: distributed.all_reduce(whole), whole),
            "all_gather": (lambda: distributed.all_gather_into_tensor(whole, other), whole),
            "reduce_scatter": (lambda: distributed.reduce_scatter_tensor(other, whole), other),
            "sendrecv": (exchange, other),  # from each process to the next, in a ring
        }[name]
        return repeated(operation, lambda _: result[0].item())  # on a GPU waits for the last one


def traced(work: Callable[[], None], folder: Path, on_gpu: bool) -> list[dict[str, Any]]:
    """The trace of `work` as Engine.profile returns it; the folder is for the profiler's files."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, *[kinds.CUDA] * on_gpu]) as profiler:
        work()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
