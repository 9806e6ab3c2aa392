"""Fully sharded: each device keeps a part of the weights and gathers the others when it needs them.

- torch.distributed.fsdp.fully_shard; the design is that of Y. Zhao et al. (2023), PyTorch FSDP:
  experiences on scaling fully sharded data parallel, VLDB 16(12), arXiv:2304.11277.
- Each block of a transformer is gathered by itself, and so is any other layer or block of at least
  `unit_parameters`; the remaining weights are gathered together, among them those of embeddings and
  those that layers share, since another layer may use them, too. Each device gets the means of the
  gradients of its own part, and updates that.
- In bfloat16 and float16 weights are gathered in this format, layers compute in it, and gradients
  are reduced in float32 (MixedPrecisionPolicy, without autocast); each device's part of the weights
  is float32. Weights of batch normalisation are gathered by themselves, in float32, as its kernels
  take them. What is gathered and reduced in a step is stated, see exchanged_bytes.
- Weights are channels first, the only layout that fully_shard takes; items are channels last.
- Every forward pass gathers, so all devices take part in an evaluation, which rank 0 logs.
- In a checkpoint each rank keeps its own part. The digest of the weights is that of all of them,
  gathered on each device.
- Moving statistics are as under ddp.

Options:
    unit_parameters        the fewest parameters of a layer that is gathered by itself, and of a
                           block that is none of a transformer
    reshard_after_forward  false: gathered weights stay until the backward pass
"""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.trainer.pytorch.processes import Joined
from dlbench.trainer.pytorch.strategies import Module, Tensor
from dlbench.trainer.strategy import Spec, digest

FLOAT32_BYTES = 4


class Unit(NamedTuple):
    """What is gathered and reduced at once.

    Attributes:
        shapes: of its weights.
        element_bytes: of a weight as it is gathered.
        stays: whether it stays from the forward to the backward pass, once it is gathered.
    """

    shapes: Sequence[Sequence[int]]
    element_bytes: int
    stays: bool


class Strategy(Joined):
    OPTIONS = {"unit_parameters": 100_000, "reshard_after_forward": True}
    replicates_weights = False
    uses_autocast = False
    evaluates_together = True

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        self._spec = spec
        self._units: list[Unit] = []
        super().__init__(spec, device, folder)

    def settings(self) -> dict[str, Any]:
        parts, mode = self._spec.accumulate_steps, self._spec.mode
        gathered, reduced = exchanged_bytes(self._units, self.size, parts, mode)
        stated = {"gathered_bytes_per_step": gathered, "reduced_bytes_per_step": reduced}
        return {**super().settings(), **stated}

    def parallelize(self, model: Module) -> Module:
        import torch
        from torch import distributed
        from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

        from dlbench.trainer.pytorch.step import AUTOCAST

        _check_axes(model)
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                distributed.broadcast(tensor, 0)
        model.to(memory_format=torch.contiguous_format)
        mesh = distributed.init_device_mesh(self.device.type, (self.size,))
        dtype = AUTOCAST.get(self._spec.precision)
        policy = MixedPrecisionPolicy(dtype, reduce_dtype=dtype and torch.float32)
        reshard = self.options["reshard_after_forward"]
        inner: list[tuple[Any, MixedPrecisionPolicy]] = [
            (unit, policy) for unit in _units(model, self.options["unit_parameters"])
        ]
        if dtype and (normalising := list(_normalising(model))):
            inner.insert(0, (normalising, MixedPrecisionPolicy()))
        self._units = list(_described([*inner, (model, policy)], reshard))
        for unit, own in inner:
            fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=own)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for module in model.modules():
            if isinstance(module, FSDPModule) and not self.on_gpus:
                module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
        return model

    def gradient_sync(self, model: Module, enabled: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(enabled)
        return super().gradient_sync(model, enabled)

    def local_shard(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    def weights_sha256(self, weights: Sequence[Tensor]) -> list[str]:
        # After an evaluation some weights are still gathered.
        whole = (w.full_tensor() if hasattr(w, "full_tensor") else w for w in weights)
        return [digest(weight.detach().cpu().numpy() for weight in whole)]


def exchanged_bytes(
    units: Iterable[Unit], ranks: int, parts: int = 1, mode: str = "train"
) -> tuple[int, int]:
    """The bytes of the weights that are gathered in a step, and of the gradients that are reduced.

    - A weight is cut along its first axis; the last parts are filled up to the length of the first.
    - A unit is gathered before its forward pass, and before its backward pass unless it stays. The
      whole of it arrives at each rank, which sends (ranks - 1) / ranks as many bytes.
    - Gradients are reduced once, in float32, after the last part of the batch.

    Args:
        parts: in which a batch is computed, one after the other.
        mode: of the run. Of mode `forward` what stays is gathered before the first step alone.

    >>> unit = Unit(shapes=[(3, 5), (4,)], element_bytes=2, stays=False)
    >>> exchanged_bytes([unit], ranks=2)  # 4 x 5 and 4 elements, twice
    (96, 96)
    """
    gathered = reduced = 0
    for shapes, element_bytes, stays in units:
        elements = sum(
            ranks * math.ceil(first / ranks) * math.prod(others) for first, *others in shapes
        )
        if mode == "forward":
            gathered += 0 if stays else parts * elements * element_bytes
        else:
            gathered += parts * elements * element_bytes * (1 if stays else 2)
            reduced += elements * FLOAT32_BYTES
    return gathered, reduced


def _described(modules: Sequence[tuple[Any, Any]], reshard: bool) -> Iterator[Unit]:
    """The Unit of each (module or list of modules, policy), the whole model last; none is divided.

    A weight is in the first unit of which it is a part.
    """
    known: set[int] = set()
    for module, policy in modules:
        parts = module if isinstance(module, list) else [module]
        own = {id(w): w for part in parts for w in part.parameters() if id(w) not in known}
        known |= own.keys()
        element_bytes = policy.param_dtype.itemsize if policy.param_dtype else FLOAT32_BYTES
        stays = not reshard or module is modules[-1][0]
        yield Unit([tuple(weight.shape) for weight in own.values()], element_bytes, stays)


def _check_axes(model: Module) -> None:
    """Check that each weight has an axis along which it can be divided."""
    scalars = [name for name, weight in model.named_parameters() if not weight.ndim]
    if scalars:
        raise Error(
            f"strategy fsdp divides each weight along its first axis, and {scalars[0]} has none: "
            "give it one, as torch.nn.Parameter(torch.ones(1)) has, or choose strategy ddp"
        )


def _normalising(model: Module) -> Iterator[Module]:
    """The layers of batch normalisation that have weights."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for module in model.modules():
        if isinstance(module, _BatchNorm) and any(True for _ in module.parameters()):
            yield module


def _units(model: Module, least: int) -> list[Module]:
    """The modules that are gathered by themselves: blocks, and those with so many parameters.

    Each is called, and nothing outside of it uses its weights.
    """
    from torch import nn

    from dlbench.trainer.pytorch import blocks

    everywhere, all_blocks = _uses(model), set(blocks.of_model(model))

    def units(module):
        for child in module.children():
            large = sum(weight.numel() for weight in child.parameters()) >= least
            has_blocks = any(part in all_blocks for part in child.modules())
            if not (large or has_blocks):
                continue
            is_list = isinstance(child, nn.Sequential | nn.ModuleList | nn.ModuleDict)
            is_called = type(child).forward is not nn.Module.forward
            has_embedding = any(isinstance(part, nn.Embedding) for part in child.modules())
            shares = any(everywhere[weight] > count for weight, count in _uses(child).items())
            # What has blocks is gathered block by block.
            is_whole = child in all_blocks or not has_blocks
            if is_called and is_whole and not (is_list or has_embedding or shares):
                yield child
            else:
                yield from units(child)

    return list(units(model))


def _uses(module: Module) -> collections.Counter[int]:
    """How many layers of a module have each weight, by its identity."""
    parts = (part.parameters(recurse=False) for part in module.modules())
    return collections.Counter(id(weight) for weights in parts for weight in weights)
