"""Data parallel over a mesh of all devices: batches are sharded, weights replicated.

- One process drives all devices of its node, or each device has a process of its own. Several
  processes rendezvous as under other strategies (dlbench/trainer/cluster.py) and are connected by
  jax.distributed, over gloo on CPUs and NCCL on GPUs.
- All processes have equal weights and draw equal random numbers.

Options:
    processes   one for each node, or one for each device
    batch_norm  local: moments are those of a device's own items, as under TensorFlow's
                strategies, and moving statistics are averaged; dropout drops the same units on
                each device. global: as on one device with all items
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.common import networks, terminal
from dlbench.trainer import cluster
from dlbench.trainer.jax.strategies import Array, Base, Function
from dlbench.trainer.strategy import Spec

AXIS = "devices"
PATIENCE_S = 10  # a process that exits waits so long for the others, which may have failed


class Strategy(Base):
    reduces = True
    OPTIONS = {"processes": ("node", "device"), "batch_norm": ("local", "global")}

    @classmethod
    def unsupported(cls, run: Spec) -> str | None:
        together = cluster.protocol(run.launcher) in cls.protocols
        if sum(cls.jobs(run).values()) > 1 and not together:
            return (
                "strategy sharded has several processes on several nodes or with processes=device: "
                f"they need launcher local, srun or kubernetes, found {run.launcher}"
            )
        if run.accumulate_steps > 1 and cls.parse_options(run)["batch_norm"] == "global":
            return (
                "strategy sharded splits a batch into parts on each device: accumulate_steps needs "
                "batch_norm=local"
            )
        return super().unsupported(run)

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        each_device = Strategy.parse_options(run)["processes"] == "device"
        return run.devices_per_node if each_device else 1

    def join(self, spec: Spec) -> None:
        self.devices_per_process = spec.devices_per_node // self.processes_per_node(spec)
        if self.on_gpus:
            networks.check_interfaces("NCCL_SOCKET_IFNAME")
        jobs = self.jobs(spec)
        if sum(jobs.values()) > 1:
            this = cluster.find(spec, jobs, first_suffices=True)
            if not self.on_gpus:
                cluster.check_host_name()  # where JAX has Gloo listen
            self.rank, self.local_rank = this.task, this.local_rank
            self.size = len(this.addresses["worker"])
            self._coordinator = this.addresses["worker"][0]

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        super().__init__(spec, device, folder)
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        devices = self.local if self.size == 1 else jax.devices(device)
        self._mesh = jax.sharding.Mesh(np.asarray(devices), (AXIS,))
        self._replicated = NamedSharding(self._mesh, PartitionSpec())
        self._sharded = NamedSharding(self._mesh, PartitionSpec(AXIS))
        # The first collective waits only 30 s for the others, so it is done here, not after the
        # compilation, which may take unequally long.
        jax.jit(lambda ones: ones.sum(), out_shardings=self._replicated)(
            self.to_devices(np.ones(self.devices_per_process, np.float32))
        ).block_until_ready()

    def broadcast(self, values: Sequence[Any]) -> list[Any]:
        if self.size == 1:
            return list(values)
        from jax.experimental import multihost_utils

        arrays = [np.asarray(value) for value in values]
        return [np.asarray(value) for value in multihost_utils.broadcast_one_to_all(arrays)]

    def replicated(self, values: Sequence[Any]) -> list[Array]:
        return [self._placed(value, self._replicated, np.shape(value)) for value in values]

    def to_devices(self, values: Any) -> Array:
        return self._placed(values, self._sharded)

    def parallelize(self, function: Function) -> Function:
        import jax
        from jax.sharding import PartitionSpec

        if self.options["batch_norm"] == "global":

            def replicating(state, inputs, targets):
                after, *others = function(state, inputs, targets)
                return jax.lax.with_sharding_constraint(after, self._replicated), *others

            return replicating
        replicated, sharded = PartitionSpec(), PartitionSpec(AXIS)
        # With check_vma, JAX would add up the gradients of replicated weights itself.
        return jax.shard_map(
            function,
            mesh=self._mesh,
            in_specs=(replicated, sharded, sharded),
            out_specs=replicated,
            check_vma=False,
        )

    def mean(self, values: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if self.options["batch_norm"] == "global":
            return values  # one program computes them over all items

        def mean(value):  # random-number counters are integers, equal on all devices
            real = jnp.issubdtype(value.dtype, jnp.floating)
            return jax.lax.pmean(value, AXIS) if real else value

        return jax.tree.map(mean, values)

    def gather(self, values: Any) -> np.ndarray:
        if self.size == 1:
            return super().gather(values)
        from jax.experimental import multihost_utils

        # As bytes, since JAX would convert them to float32.
        content = np.frombuffer(np.asarray(values, np.float64).tobytes(), np.uint8)
        gathered = np.asarray(multihost_utils.process_allgather(content))
        return np.frombuffer(gathered.tobytes(), np.float64).reshape(self.size, -1)

    def _connect(self):
        if self.size == 1:
            return
        import jax

        if not self.on_gpus:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        if self.rank == 0:
            # JAX's server crashes if it cannot listen there.
            cluster.check_port_free(self._coordinator)
        # It would catch SIGTERM, which asks the trainer to stop.
        jax.config.update("jax_enable_preemption_service", False)
        try:
            jax.distributed.initialize(
                self._coordinator,
                self.size,
                self.rank,
                local_device_ids=self._gpu_numbers() if self.on_gpus else None,
                cluster_detection_method="deactivate",
                initialization_timeout=cluster.RENDEZVOUS_TIMEOUT_S,
                shutdown_timeout_seconds=PATIENCE_S,
            )
        except RuntimeError as error:  # among them XLA's own
            raise cluster.Unreachable(
                f"rank {self.rank} of {self.size}: the rendezvous at {self._coordinator} failed: "
                f"{terminal.message(str(error), 300)}"
            ) from error

    def _gpu_numbers(self):
        """Numbers of this process's GPUs among those that it sees."""
        first = self._first_gpu()
        return list(range(first, first + self.devices_per_process))

    def _placed(self, values, sharding, shape=None):
        import jax

        return jax.make_array_from_process_local_data(sharding, np.asarray(values), shape)
