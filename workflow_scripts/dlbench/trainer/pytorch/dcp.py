"""Checkpoints by torch.distributed.checkpoint (DCP), as training programs write them.

Each rank writes a file; what is equal on all ranks, one of them writes. `async_save` copies the
variables to the host's memory, and a thread of each rank writes the copies while steps go on.

Source: the documentation of torch.distributed.checkpoint, PyTorch 2.15. Not run on GPUs.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import checkpoint

from dlbench import Error
from dlbench.common import terminal
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.strategy import BaseStrategy


class Writer:
    """Saves and loads a CheckpointState: see engine.CheckpointWriter."""

    def __init__(self, state: CheckpointState, strategy: BaseStrategy, is_async: bool):
        own = {f"rank {strategy.rank}: {name}": each for name, each in state.per_rank.items()}
        self._variables = {name: copies[0] for name, copies in {**state.replicated, **own}.items()}
        self._is_async, self._where = is_async, {}
        if distributed.is_initialized():  # a group of its own: its thread communicates beside steps
            self._where = {"process_group": distributed.new_group(backend="gloo")}

    def save(self, place: Path) -> "Future[Any] | None":
        tensors = {name: _tensor(variable) for name, variable in self._variables.items()}
        save = checkpoint.async_save if self._is_async else checkpoint.save
        future = save(tensors, checkpoint_id=place, **self._where)
        return future if self._is_async else None

    def load(self, place: Path) -> None:
        tensors = {name: _tensor(each).clone() for name, each in self._variables.items()}
        try:
            # Alone: together, all ranks would have to read the same names.
            checkpoint.load(tensors, checkpoint_id=place, no_dist=True)
        except (checkpoint.CheckpointException, OSError, RuntimeError, ValueError) as error:
            raise Error(
                f"{place} cannot be read ({terminal.message(str(error), 300)}): delete "
                f"{place.parent} to begin anew"
            ) from error
        for name, variable in self._variables.items():
            variable.assign(tensors[name].cpu().numpy())


def _tensor(variable):
    """The tensor of a variable on its device, or a copy of what is no tensor."""
    tensor = getattr(variable, "tensor", None)
    return torch.from_numpy(variable.numpy()) if tensor is None else tensor
