"""Hybrid sharding: weights are sharded within groups of ranks and replicated across the groups.

- torch.distributed.fsdp.fully_shard on a mesh of two dimensions; section 3.2.2 of the publication
  that fsdp.py names. A group gathers weights and reduce-scatters gradients among its own ranks, and
  each rank all-reduces its shard of the gradients with those of the same place in other groups.
- On one group it is strategy fsdp. All else is as there.

Options, the last two as those of fsdp:
    shard_size             consecutive ranks of a group; it divides the devices of a node, and 0 is
                           all of them
    unit_parameters        the fewest parameters of a unit
    reshard_after_forward  false: gathered weights stay gathered
"""

from typing import Any

from dlbench.trainer.pytorch.strategies import Module, fsdp
from dlbench.trainer.strategy import Spec


class Strategy(fsdp.Strategy):
    OPTIONS = {**fsdp.Strategy.OPTIONS, "shard_size": 0}

    @classmethod
    def unsupported(cls, run: Spec) -> str | None:
        size = cls.parse_options(run)["shard_size"]
        if size and run.devices_per_node % size:
            return f"shard_size, {size}, does not divide devices_per_node, {run.devices_per_node}"
        return super().unsupported(run)

    def join(self, spec: Spec) -> None:
        super().join(spec)
        self._ranks: int = self.options["shard_size"] or spec.devices_per_node
        self._groups = self.size // self._ranks

    def _exchanged(self) -> dict[str, int]:
        exchanged = super()._exchanged()
        shard = self._gradients // self._sharers if self._groups > 1 else 0
        return {**exchanged, "all_reduced_bytes_per_step": shard}

    def _mesh(self, model: Module) -> Any:
        return self._mesh_of("replicate", "shard") if self._groups > 1 else super()._mesh(model)

    def _mesh_of(self, *names: str) -> Any:
        """The ranks as a mesh of (groups, ranks of a group)."""
        from torch import distributed

        shape = (self._groups, self._ranks)
        return distributed.init_device_mesh(self.device.type, shape, mesh_dim_names=names)
