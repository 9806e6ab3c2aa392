"""The matrix product and the copy that calibration.py times under PyTorch."""

import torch

from dlbench.trainer.calibration import Repeat
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

        def repeat(count: int) -> None:
            for _ in range(count):
                torch.mm(factor, factor, out=result)
            result[0, 0].item()

        return repeat

    def copy(self, elements: int) -> tuple[Repeat, int]:
        source, sums = (torch.zeros(elements, device=self._device) for _ in range(2))

        def repeat(count: int) -> None:
            for _ in range(count):
                sums.add_(source)
            sums[0].item()

        return repeat, 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        source, copied = torch.zeros(elements), torch.zeros(elements, device=self._device)
        if copied.is_cuda:  # from pageable memory CUDA would copy through a staging buffer
            source = source.pin_memory()

        def repeat(count: int) -> None:
            for _ in range(count):
                copied.copy_(source, non_blocking=True)
            copied[0].item()

        return repeat
