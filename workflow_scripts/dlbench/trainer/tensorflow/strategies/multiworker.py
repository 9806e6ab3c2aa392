"""tf.distribute.MultiWorkerMirroredStrategy: one process per device, on any number of nodes.

- Synchronous: Keras's optimizer sums the gradients over all processes, so a
  process's loss is divided by their number.
- The cluster is in TF_CONFIG, or follows from Slurm's variables
  (dlbench/trainer/cluster.py).
- One process per device, as with Horovod, and not one per node with all its
  devices: so the two strategies are compared with the same layout of processes.

Options:
    communication  of collectives: ring (gRPC) or nccl; auto is TensorFlow's choice
    pack_mib       gradients are packed into pieces of this size; 0: all in one
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common import networks
from dlbench.trainer import cluster
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.strategies import Base, Items, Tensor, Variable, resolver


class Strategy(Base):
    launcher = "local"
    OPTIONS = {"communication": ("auto", "ring", "nccl"), "pack_mib": 0}
    reduces = True
    clips_mean = False  # Keras clips before it sums

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        return run.devices_per_node

    def join(self, spec: Spec) -> None:
        if self.on_gpus:
            networks.check_interfaces("NCCL_SOCKET_IFNAME")
        self._cluster = cluster.find(spec, self.jobs(spec))
        self.rank, self.size = self._cluster.task, len(self._cluster.addresses["worker"])
        self.local_rank = self._cluster.local_rank

    def _connected(self, device):
        import tensorflow as tf

        communication = tf.distribute.experimental.CommunicationImplementation[
            self.options["communication"].upper()
        ]
        self._packed = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=self.options["pack_mib"] << 20, implementation=communication
        )
        self._workers = tf.distribute.MultiWorkerMirroredStrategy(
            resolver(self._cluster), communication_options=self._packed
        )
        workers = self._workers.num_replicas_in_sync
        if workers != self.size:
            raise Error(f"expected one device in each of {self.size} processes, found {workers}")
        return list(self._workers.extended.worker_devices)

    def scope(self) -> AbstractContextManager[Any]:
        return self._workers.scope()

    def loss_scale(self) -> float:
        return 1.0 / self.size

    def run(self, function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
        return self._workers.run(function, args=arguments)

    def iterator(self, make: Callable[[int | Tensor, int], Any]) -> Iterator[Items]:
        if not self.on_gpus:
            return super().iterator(make)
        # tf.distribute prefetches the dataset to the device.
        return iter(
            self._workers.distribute_datasets_from_function(lambda _: make(self.rank, self.size))
        )

    def gather(self, values: Any) -> np.ndarray:
        return np.asarray(self._gathered(np.asarray([values], np.float64)))

    @functools.cached_property
    def _gathered(self):
        """Traced once for each length: a baseline gathers hundreds of times."""
        import tensorflow as tf

        def all_gather(values):
            values = tf.identity(values)  # on the device, which an argument is not
            return tf.distribute.get_replica_context().all_gather(values, axis=0)

        spec = tf.TensorSpec([1, None], tf.float64)
        return tf.function(lambda values: self._workers.run(all_gather, (values,)), [spec])

    def copies(self, variable: Variable) -> list[Variable]:
        return list(self._workers.experimental_local_results(variable))
