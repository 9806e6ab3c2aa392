"""Tensor parallel: the ranks of a group share the layers of each block, and train the same items.

- M. Shoeybi et al. (2019). Megatron-LM: training multi-billion parameter language models using
  model parallelism. arXiv:1909.08053, section 3.
- torch.distributed.tensor.parallel.parallelize_module: ColwiseParallel divides the outputs of a
  layer, RowwiseParallel the inputs of the next. Per block, the sums of the latter are all-reduced
  in the forward pass, and the gradients of the former's inputs in the backward pass. All weights
  outside of blocks are on each rank of a group.
- Groups are data parallel: fully_shard shards each weight of a rank over the groups (strategy fsdp,
  with its options; on one group it casts weights and exchanges nothing).
- A group takes the items of all its devices at once, batch_per_device times its ranks. So batches,
  throughput and losses are those of as many devices under other strategies.
- DIVIDES = ("pytorch",) of a model's file says that its blocks can be divided. `divide(ranks)` of a
  block keeps a rank's share of its heads, and returns its layers by name. One whose outputs are
  divided comes with the outputs of each matrix that it joins, as queries, keys and values, so that
  each rank gets its share of each. One whose inputs are divided comes with ().

Options, the last two as those of fsdp:
    shard_size             consecutive ranks of a group; it divides the devices of a node, and 0 is
                           all of them
    unit_parameters        the fewest parameters of a unit
    reshard_after_forward  false: gathered weights stay gathered
"""

import logging
from typing import Any

from dlbench.common import plugins
from dlbench.trainer.pytorch.strategies import Module, hsdp
from dlbench.trainer.strategy import Spec


class Strategy(hsdp.Strategy):
    _all_reduced_bytes = 0

    @classmethod
    def unsupported(cls, run: Spec) -> str | None:
        if run.precision == "float16":
            return "ranks under tensor_parallel would scale the loss differently; choose bfloat16"
        if "pytorch" not in plugins.constants("pytorch/models", run.model).get("DIVIDES", ()):
            return f"tensor_parallel is of models with pytorch in DIVIDES; not so {run.model}"
        return super().unsupported(run)

    def join(self, spec: Spec) -> None:
        super().join(spec)
        self.ranks_per_batch = self._ranks

    def _mesh(self, model: Module) -> Any:
        import torch
        from torch.distributed.tensor import parallel

        from dlbench.trainer.pytorch import building
        from dlbench.trainer.pytorch.step import AUTOCAST

        # It warns that a digest takes two gathers, over the ranks of a group and over the groups.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        mesh, values = self._mesh_of("data", "tensor"), 0
        styles = {True: parallel.ColwiseParallel, False: parallel.RowwiseParallel}
        for block in building.find_blocks(model):
            layers = block.divide(self._ranks)
            values += _all_reduced_values(self._spec, block, layers)
            for name, joined in layers.items():
                if joined:
                    _regroup(block.get_submodule(name), joined, self._ranks)
            plan = {n: styles[bool(joined)]() for n, joined in layers.items()}
            parallel.parallelize_module(block, mesh["tensor"], plan, src_data_rank=None)
        dtype = AUTOCAST.get(self._spec.precision, torch.float32)
        tokens = self._spec.batch_per_device * self._ranks * (self.tokens or 0)
        self._all_reduced_bytes = values * tokens * dtype.itemsize if self._ranks > 1 else 0
        return mesh["data"]

    def _exchanged(self) -> dict[str, int]:
        return {**super()._exchanged(), "all_reduced_bytes_per_step": self._all_reduced_bytes}


def _all_reduced_values(spec, block, layers):
    """How many values of each token the ranks of a group all-reduce for a block in a step."""
    sums = [block.get_submodule(name).out_features for name, joined in layers.items() if not joined]
    inputs = [block.get_submodule(name).in_features for name, joined in layers.items() if joined]
    if spec.mode == "forward":
        return sum(sums)
    # Recomputing ends before the last sum, unless the block normalises that.
    again = sums[:-1] if getattr(block, "norm_first", True) else sums
    return sum(sums + inputs + (again if spec.recompute else []))


def _regroup(layer, joined, ranks):
    """Order the outputs of a layer by rank, each with its share of all matrices that it joins."""
    import torch

    for weight in layer.parameters():
        parts = [matrix.chunk(ranks) for matrix in weight.detach().split(joined)]
        shares = [share for of_rank in zip(*parts, strict=True) for share in of_rank]
        weight.data.copy_(torch.cat(shares))
