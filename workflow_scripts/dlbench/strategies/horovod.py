"""Horovod: one process per device, gradients averaged by all-reduce, over MPI or gloo.

- Keras 3 with Horovod's own DistributedOptimizer raises nothing and does not
  synchronise: the ranks drift apart. So gradients are averaged here, on the raw
  TensorFlow variables, and every run ends with a digest of each rank's weights.
- All gradients go in one group and the cycle is 5 ms: with the defaults (no
  groups, 1 ms) two CPU processes lost a quarter of their speed on ResNet-56.
  HOROVOD_CYCLE_TIME in the environment overrides the cycle.
"""

import os

from dlbench.strategies import Base

CYCLE_TIME_MS = "5"


class Strategy(Base):
    packages = ("horovod",)
    launcher = "horovodrun"

    @staticmethod
    def processes_per_node(run):
        return run.devices_per_node

    def join(self, devices_per_node):
        os.environ.setdefault("HOROVOD_CYCLE_TIME", CYCLE_TIME_MS)
        import horovod.tensorflow as hvd

        self._hvd = hvd
        hvd.init()
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        if hvd.local_size() != devices_per_node:
            raise RuntimeError(
                f"expected {devices_per_node} Horovod processes on this node, found "
                f"{hvd.local_size()} (rank {self.rank} of {self.size}): was the trainer started "
                "by horovodrun or mpirun, and is it the MPI that Horovod was built with?"
            )

    def settings(self):
        return {
            "controller": "mpi" if self._hvd.mpi_enabled() else "gloo",
            "cycle_time_ms": float(os.environ["HOROVOD_CYCLE_TIME"]),
            "gradient_groups": 1,
        }

    def broadcast(self, variables):
        self._hvd.broadcast_variables(variables, root_rank=0)

    def barrier(self):
        import tensorflow as tf

        self._hvd.allreduce(tf.zeros(1), name="barrier")

    def reduce(self, gradients):
        return self._hvd.grouped_allreduce(gradients, op=self._hvd.Average)
