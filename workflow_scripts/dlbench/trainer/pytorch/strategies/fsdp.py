"""Fully sharded data parallel: each device holds a shard of each weight and gathers it when needed.

- torch.distributed.fsdp.fully_shard; the design is that of Y. Zhao et al. (2023), PyTorch FSDP:
  experiences on scaling fully sharded data parallel, VLDB 16(12), arXiv:2304.11277.
- Each block of a transformer is a unit that is all-gathered by itself, and so is any other layer or
  block with at least `unit_parameters`. All other weights form one more unit; among them are those
  of embeddings and those that layers share, because another layer may use them, too. Gradients are
  reduce-scattered: each device gets the means for its own shard, and updates that.
- In bfloat16 and float16 weights are gathered and layers compute in this dtype, and gradients are
  reduced in float32 (MixedPrecisionPolicy, without autocast); shards are float32. Weights of batch
  normalisation are gathered separately, in float32, which its kernels need. The log has the bytes
  that a step gathers and reduces, see exchanged_bytes.
- Weights are channels first, the only layout that fully_shard accepts; items are channels last.
- Every forward pass gathers, so all devices take part in an evaluation, which rank 0 logs.
- In a checkpoint each rank saves its shards. The digest of the weights is that of the whole
  weights, gathered on each device.
- Moving statistics are as under ddp.

Options:
    unit_parameters        the fewest parameters of a layer, or of a block outside of transformers,
                           that is a unit
    reshard_after_forward  false: gathered weights stay gathered until the backward pass
"""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.trainer.pytorch.processes import DistributedBase
from dlbench.trainer.pytorch.strategies import Module, Tensor
from dlbench.trainer.strategy import Spec, digest

FLOAT32_BYTES = 4


class Unit(NamedTuple):
    """Weights that are gathered together, and whose gradients are reduced together."""

    shapes: Sequence[Sequence[int]]
    element_bytes: int  # as it is gathered
    stays: bool  # gathered from the forward to the backward pass


class Strategy(DistributedBase):
    OPTIONS = {"unit_parameters": 100_000, "reshard_after_forward": True}
    replicates_weights = False
    uses_autocast = False
    evaluates_together = True

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        self._spec = spec
        self._units: list[Unit] = []
        self._sharers = 1  # ranks among which each weight is sharded
        super().__init__(spec, device, folder)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self._exchanged()}

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
        mesh = self._mesh(model)
        self._sharers = mesh.size(mesh.ndim - 1)
        dtype = AUTOCAST.get(self._spec.precision)
        policy = MixedPrecisionPolicy(dtype, reduce_dtype=dtype and torch.float32)
        reshard = self.options["reshard_after_forward"]
        inner: list[tuple[Any, MixedPrecisionPolicy]] = [
            (unit, policy) for unit in _units(model, self.options["unit_parameters"])
        ]
        if dtype and (normalising := list(_normalising(model))):
            inner.insert(0, (normalising, MixedPrecisionPolicy()))
        self._units = list(_described([*inner, (model, policy)], reshard))
        for unit, unit_policy in inner:
            fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=unit_policy)
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

    def _mesh(self, model: Module) -> Any:
        """The mesh of `fully_shard`, which shards over its last dimension."""
        from torch import distributed

        return distributed.init_device_mesh(self.device.type, (self.size,))

    def _exchanged(self) -> dict[str, int]:
        """The bytes of the collectives of a step, by kind."""
        parts, mode = self._spec.accumulate_steps, self._spec.mode
        gathered, self._gradients = exchanged_bytes(self._units, self._sharers, parts, mode)
        counts = {"gathered": gathered, "reduced": self._gradients}
        shared = self._sharers > 1
        return {f"{kind}_bytes_per_step": shared * count for kind, count in counts.items()}


def exchanged_bytes(
    units: Iterable[Unit], ranks: int, parts: int = 1, mode: str = "train"
) -> tuple[int, int]:
    """The bytes of the weights that are gathered in a step, and of the gradients that are reduced.

    - A weight is sharded along its first axis; the last shards are padded to the size of the first.
    - A unit is gathered before its forward pass, and before its backward pass unless it stays
      gathered. Each rank then has all of it; it sends (ranks - 1) / ranks as many bytes.
    - Gradients are reduced once, in float32, after the last of the `parts` of the batch.
    - In mode `forward` a unit that stays gathered is gathered before the first step only.

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
    """The Unit of each (module or list of modules, policy), the whole model last.

    Called before the weights are sharded. A weight belongs to the first unit that contains it.
    """
    known: set[int] = set()
    for module, policy in modules:
        members = module if isinstance(module, list) else [module]
        new = {id(w): w for member in members for w in member.parameters() if id(w) not in known}
        known |= new.keys()
        element_bytes = policy.param_dtype.itemsize if policy.param_dtype else FLOAT32_BYTES
        stays = not reshard or module is modules[-1][0]
        local = (w.to_local() if hasattr(w, "to_local") else w for w in new.values())
        yield Unit([tuple(weight.shape) for weight in local], element_bytes, stays)


def _check_axes(model: Module) -> None:
    """Check that each weight has an axis along which it can be sharded."""
    scalars = [name for name, weight in model.named_parameters() if not weight.ndim]
    if scalars:
        raise Error(
            f"strategy fsdp shards each weight along its first axis, and {scalars[0]} has none: "
            "give it one, as torch.nn.Parameter(torch.ones(1)) has, or choose strategy ddp"
        )


def _normalising(model: Module) -> Iterator[Module]:
    """The layers of batch normalisation that have weights."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for module in model.modules():
        if isinstance(module, _BatchNorm) and any(True for _ in module.parameters()):
            yield module


def _units(model: Module, least: int) -> list[Module]:
    """The modules that are units: blocks, and modules with at least `least` parameters.

    Each has a forward method, and no module outside of it uses its weights.
    """
    from torch import nn

    from dlbench.trainer.pytorch import building

    everywhere, all_blocks = _uses(model), set(building.find_blocks(model))

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
            # A module with blocks is gathered block by block.
            is_whole = child in all_blocks or not has_blocks
            if is_called and is_whole and not (is_list or has_embedding or shares):
                yield child
            else:
                yield from units(child)

    return list(units(model))


def _uses(module: Module) -> collections.Counter[int]:
    """Number of layers of a module that use a weight, by the weight's identity."""
    layers = (layer.parameters(recurse=False) for layer in module.modules())
    return collections.Counter(id(weight) for weights in layers for weight in weights)
