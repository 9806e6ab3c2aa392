"""Fully sharded: each device keeps a part of the weights and gathers the others when it needs them.

- torch.distributed.fsdp.fully_shard; the design is that of Y. Zhao et al. (2023), PyTorch FSDP:
  experiences on scaling fully sharded data parallel, VLDB 16(12), arXiv:2304.11277.
- A layer or block of at least `unit_parameters` is gathered by itself; the remaining weights are
  gathered together, among them those of embeddings and those that layers share, since another layer
  may use them, too. Each device gets the means of the gradients of its own part, and updates that.
- Weights are channels first, the only layout that fully_shard takes; items are channels last.
- Every forward pass gathers, so all devices take part in an evaluation, which rank 0 logs.
- In a checkpoint each rank keeps its own part. The digest of the weights is that of all of them,
  gathered on each device.
- Moving statistics are as under ddp.

Options:
    unit_parameters        the fewest parameters of a layer or block that is gathered by itself
    reshard_after_forward  false: gathered weights stay until the backward pass
"""

import collections
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dlbench import Error
from dlbench.trainer.pytorch.processes import Joined
from dlbench.trainer.pytorch.strategies import Module, Tensor
from dlbench.trainer.strategy import digest


class Strategy(Joined):
    OPTIONS = {"unit_parameters": 100_000, "reshard_after_forward": True}
    has_whole_weights = False
    evaluates_together = True

    def over_devices(self, model: Module) -> Module:
        import torch
        from torch import distributed
        from torch.distributed.fsdp import FSDPModule, fully_shard

        _check_axes(model)
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                distributed.broadcast(tensor, 0)
        model.to(memory_format=torch.contiguous_format)
        mesh = distributed.init_device_mesh(self.device.type, (self.size,))
        for unit in _units(model, self.options["unit_parameters"]):
            fully_shard(
                unit, mesh=mesh, reshard_after_forward=self.options["reshard_after_forward"]
            )
        fully_shard(model, mesh=mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule) and not self.on_gpus:
                module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
        return model

    def exchanging(self, model: Module, wanted: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(wanted)
        return super().exchanging(model, wanted)

    def part(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    def weights_sha256(self, weights: Sequence[Tensor]) -> list[str]:
        # After an evaluation some weights are still gathered.
        whole = (w.full_tensor() if hasattr(w, "full_tensor") else w for w in weights)
        return [digest(weight.detach().cpu().numpy() for weight in whole)]


def _check_axes(model: Module) -> None:
    """Check that each weight has an axis along which it can be divided."""
    scalars = [name for name, weight in model.named_parameters() if not weight.ndim]
    if scalars:
        raise Error(
            f"strategy fsdp divides each weight along its first axis, and {scalars[0]} has none: "
            "give it one, as torch.nn.Parameter(torch.ones(1)) has, or choose strategy ddp"
        )


def _units(model: Module, least: int) -> list[Module]:
    """The modules that are gathered by themselves: those with at least so many parameters.

    Each is called, and nothing outside of it uses its weights.
    """
    from torch import nn

    everywhere = _uses(model)

    def units(module):
        for child in module.children():
            if sum(weight.numel() for weight in child.parameters()) < least:
                continue
            is_list = isinstance(child, nn.Sequential | nn.ModuleList | nn.ModuleDict)
            is_called = type(child).forward is not nn.Module.forward
            has_embedding = any(isinstance(part, nn.Embedding) for part in child.modules())
            shares = any(everywhere[weight] > count for weight, count in _uses(child).items())
            if is_called and not (is_list or has_embedding or shares):
                yield child
            else:
                yield from units(child)

    return list(units(model))


def _uses(module: Module) -> collections.Counter[int]:
    """How many layers of a module have each weight, by its identity."""
    parts = (part.parameters(recurse=False) for part in module.modules())
    return collections.Counter(id(weight) for weights in parts for weight in weights)
