"""All-reduce by torch.distributed, which DistributedDataParallel calls for each of its buckets.

FSDP gathers and scatters by the calls below; pipelines send and receive by the last.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from dlbench.trainer.calibration import Repeat
from dlbench.trainer.pytorch.strategies import Base


def all_reduce(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all processes."""
    values = torch.zeros(elements, device=strategy.device)
    return _repeated(lambda: distributed.all_reduce(values), values)


def all_gather(strategy: Base, elements: int) -> Repeat:
    """So many values of float32 in each process, of which each has a part."""
    gathered = torch.zeros(elements, device=strategy.device)
    part = torch.zeros(elements // distributed.get_world_size(), device=strategy.device)
    return _repeated(lambda: distributed.all_gather_into_tensor(gathered, part), gathered)


def reduce_scatter(strategy: Base, elements: int) -> Repeat:
    """The sum of so many values of float32 over all processes, a part of it in each."""
    values = torch.zeros(elements, device=strategy.device)
    part = torch.zeros(elements // distributed.get_world_size(), device=strategy.device)
    return _repeated(lambda: distributed.reduce_scatter_tensor(part, values), part)


def sendrecv(strategy: Base, elements: int) -> Repeat:
    """So many values of float32 from each process to the next, in a ring."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    sent, received = (torch.zeros(elements, device=strategy.device) for _ in range(2))

    def exchange():
        both = [
            distributed.P2POp(distributed.isend, sent, (rank + 1) % size),
            distributed.P2POp(distributed.irecv, received, (rank - 1) % size),
        ]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    return _repeated(exchange, received)


def _repeated(operation: Callable[[], Any], result: torch.Tensor) -> Repeat:
    def repeat(count: int) -> None:
        for _ in range(count):
            operation()
        result[0].item()  # on a GPU waits for the last one

    return repeat
