"""Data parallel over a mesh of all devices: batches are sharded, weights replicated.

- One process drives all devices of its node, or each device has a process of its own. Several
  processes rendezvous as under other strategies (dlbench/trainer/cluster.py) and are connected by
  jax.distributed, over gloo on CPUs and NCCL on GPUs.
- All processes have equal weights and draw equal random numbers.

Options:
    processes   one for each node, or one for each device
    model_axis  devices that share the dense layers of each block, and their heads, as under
                tensor_parallel of PyTorch: the mesh is (devices / model_axis, model_axis). Such a
                group takes the items of all its devices. XLA adds the collectives (GSPMD:
                Y. Xu et al. 2021, arXiv:2105.04663); the log has the bytes of its all-reduces,
                each gradient once (of an embedding that gives logits, too, XLA reduces two), and
                without what recomputing repeats. It needs batch_norm=global
    batch_norm  local: moments are those of a device's own items, as under TensorFlow's
                strategies, and moving statistics are averaged; dropout drops the same units on
                each device. global: as on one device with all items
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common import networks, plugins, terminal
from dlbench.trainer import cluster
from dlbench.trainer.jax.strategies import Array, Base, Function
from dlbench.trainer.strategy import Spec

AXIS, MODEL_AXIS = "devices", "model"
FLOAT32_BYTES = 4
PATIENCE_S = 10  # a process that exits waits so long for the others, which may have failed


class Strategy(Base):
    reduces = True
    OPTIONS = {"processes": ("node", "device"), "batch_norm": ("local", "global"), "model_axis": 1}

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
        return super().unsupported(run) or cls._not_shared(run)

    @classmethod
    def _not_shared(cls, run):
        """Why devices cannot share a run's model as its options say; None if they can."""
        options = cls.parse_options(run)
        if options["model_axis"] == 1:
            return None
        if not options["model_axis"] or run.devices_per_node % options["model_axis"]:
            return f"model_axis is {options['model_axis']}, and does not divide devices_per_node"
        if (options["processes"], options["batch_norm"]) != ("node", "global"):
            return "model_axis needs batch_norm=global and processes=node"
        if "jax" not in plugins.constants("keras/models", run.model).get("DIVIDES", ()):
            return f"model_axis is of models with jax in DIVIDES; not so {run.model}"
        return None

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
        self._spec, self._all_reduced_bytes = spec, 0
        self.devices_per_copy = each = self.options["model_axis"]
        shape, names = ((-1, each), (AXIS, MODEL_AXIS)) if each > 1 else ((-1,), (AXIS,))
        self._mesh = jax.sharding.Mesh(np.asarray(devices).reshape(shape), names)
        self._replicated = NamedSharding(self._mesh, PartitionSpec())
        self._sharded = NamedSharding(self._mesh, PartitionSpec(AXIS))
        # The first collective waits only 30 s for the others, so it is done here, not after the
        # compilation, which may take unequally long.
        jax.jit(lambda ones: ones.sum(), out_shardings=self._replicated)(
            self.to_devices(np.ones(self.devices_per_process, np.float32))
        ).block_until_ready()

    def settings(self) -> dict[str, Any]:
        exchanged = {"all_reduced_bytes_per_step": self._all_reduced_bytes}
        return {**super().settings(), **(exchanged if self.devices_per_copy > 1 else {})}

    def broadcast(self, values: Sequence[Any]) -> list[Any]:
        if self.size == 1:
            return list(values)
        from jax.experimental import multihost_utils

        arrays = [np.asarray(value) for value in values]
        return [np.asarray(value) for value in multihost_utils.broadcast_one_to_all(arrays)]

    def divide(self, model: Any, optimizer: Any) -> dict[int, int]:
        each, mode, values = self.devices_per_copy, self._spec.mode, 0
        axes: dict[str, int] = {}
        for layer in model._flatten_layers() if each > 1 else ():
            if getattr(layer, "attends", False):
                if any(end // layer.size % each for end in layer.ends):
                    raise Error(f"model_axis is {each}, and does not divide the model's heads")
                layer.groups = each
            if (axis := getattr(layer, "shared_axis", None)) is None:
                continue
            axes[layer.kernel.path] = axis
            if axis:
                axes[layer.bias.path] = 0
            if not axis or mode != "forward":  # sums, and the gradients of inputs
                values += math.prod((layer.input if axis else layer.output).shape[1:])
            for variable in (layer.kernel, layer.bias) if layer.joins > 1 else ():
                grouped = variable.value.reshape(*variable.shape[:-1], layer.joins, each, -1)
                variable.assign(grouped.swapaxes(-3, -2).reshape(variable.shape))
        half = self._spec.precision in ("bfloat16", "float16")
        items = each * self._spec.batch_per_device
        self._all_reduced_bytes = items * values * (2 if half else FLOAT32_BYTES)
        if mode == "train" and self._mesh.size > each:
            weights = model.trainable_variables
            shares = (math.prod(v.shape) // (each if v.path in axes else 1) for v in weights)
            self._all_reduced_bytes += FLOAT32_BYTES * sum(shares)
        of_optimizer = {f"/{path.replace('/', '_')}_": axis for path, axis in axes.items()}
        return {id(v): axes[v.path] for v in model.trainable_variables if v.path in axes} | {
            id(v): axis
            for v in optimizer.variables
            for path, axis in of_optimizer.items()
            if path in v.path
        }

    def placed(self, values: Sequence[Any], axes: Sequence[int | None]) -> list[Array]:
        from jax.sharding import NamedSharding, PartitionSpec

        def placed(value, axis):
            shared = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, MODEL_AXIS)
            return self._placed(value, NamedSharding(self._mesh, shared), np.shape(value))

        return [placed(value, axis) for value, axis in zip(values, axes, strict=True)]

    def to_devices(self, values: Any) -> Array:
        return self._placed(values, self._sharded)

    def parallelize(self, function: Function) -> Function:
        import jax
        from jax.sharding import PartitionSpec

        if self.options["batch_norm"] == "global":

            def replicating(state, inputs, targets):
                after, *others = function(state, inputs, targets)
                return jax.lax.with_sharding_constraint(after, self.shardings), *others

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
