"""All-reduce by torch.distributed, which DistributedDataParallel calls for each of its buckets."""

import torch
from torch import distributed

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.pytorch.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all processes."""
    values = torch.zeros(elements, device=strategy.device)

    def repeat(count: int) -> None:
        for _ in range(count):
            distributed.all_reduce(values)
        values[0].item()

    return repeat
