"""Horovod: one process per device, gradients averaged by all-reduce, over MPI or gloo.

- Keras 3 with Horovod's own DistributedOptimizer raises no error and does not
  synchronise: the ranks drift apart. So gradients are averaged here, on the raw
  TensorFlow variables, and every run ends with a digest of each rank's weights.
- On CPUs all gradients are reduced as one tensor after the backward pass, and the cycle time is
  5 ms. With these defaults two CPU processes of one thread scale best on ResNet-56 with batch 32,
  less well with the tensors in one group, and worst with Horovod's defaults (no groups, 1 ms).
  There the reduction takes the cores of the backward pass.
- On GPUs each gradient is reduced once it is ready, together with those that are ready at the same
  time, in Horovod's buffer: NCCL reduces while the rest of the backward pass is computed. (Not with
  `xla: true`, where all gradients leave one compiled function together.)
- Gradients of embeddings are reduced as dense tensors.

Options, Horovod's own names in brackets:
    cycle_time_ms         between two checks for gradients that are ready
                          [HOROVOD_CYCLE_TIME, 1]
    fusion_threshold_mib  size of the buffer in which small gradients are reduced together
                          [HOROVOD_FUSION_THRESHOLD, 128]
    overlap               yes: as if gradient_groups were 0; no: as gradient_groups says;
                          auto: yes on GPUs unless gradient_groups is given (1 counts as not
                          given), no on CPUs
    gradient_groups       number of groups of gradients that are reduced together; 0: each
                          gradient by itself once it is ready [num_groups, 0]
    packed                a group is one tensor; false: Horovod packs it in its buffer
    compression           fp16: gradients are reduced in float16 [hvd.Compression]
    timeline              save Horovod's trace in timeline.json beside the log;
                          it costs time [HOROVOD_TIMELINE]
"""

import os
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common import networks
from dlbench.trainer import cluster
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.strategies import Base, Tensor, Variable


class Strategy(Base):
    packages = ("horovod",)
    reduces = True
    launcher = "horovodrun"
    protocols = ("horovod", "mpi", "slurm")
    OPTIONS = {
        "cycle_time_ms": 5.0,
        "fusion_threshold_mib": 128,
        "overlap": ("auto", "no", "yes"),
        "gradient_groups": 1,
        "packed": True,
        "compression": ("none", "fp16"),
        "timeline": False,
    }

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        return run.devices_per_node

    def join(self, spec: Spec) -> None:
        if spec.launcher == "none":  # MPI would abort without an exception
            raise Error(
                "strategy horovod needs a launcher (horovodrun, mpirun or srun), found none"
            )
        if self.on_gpus:
            networks.check_interfaces("NCCL_SOCKET_IFNAME")
        os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(cluster.EXCHANGE_TIMEOUT_S))
        os.environ["HOROVOD_CYCLE_TIME"] = str(self.options["cycle_time_ms"])
        os.environ["HOROVOD_FUSION_THRESHOLD"] = str(self.options["fusion_threshold_mib"] << 20)
        if self.options["timeline"]:
            self.folder.mkdir(parents=True, exist_ok=True)
            os.environ["HOROVOD_TIMELINE"] = str(self.folder / "timeline.json")
        import horovod.tensorflow as hvd

        self._hvd = hvd
        hvd.init()
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        if hvd.local_size() != spec.devices_per_node:
            started = os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE"))
            raise Error(
                f"expected {spec.devices_per_node} Horovod processes on this node, found "
                f"{hvd.local_size()} (rank {self.rank} of {self.size}): "
                + (
                    f"mpirun started {started}, but the MPI library here does not find them; it "
                    "must be the same MPI and, in an image, not newer than that mpirun"
                    if started and int(started) != self.size
                    else "was the trainer started by horovodrun or mpirun?"
                )
            )
        if self.size != spec.nodes * spec.devices_per_node:
            raise Error(
                f"expected {spec.nodes} nodes with {spec.devices_per_node} processes each, "
                f"found {self.size} processes in all"
            )

    def settings(self) -> dict[str, Any]:
        return {
            "controller": "mpi" if self._hvd.mpi_enabled() else "gloo",
            **self.options,
            "overlap": "no" if self._groups == 1 else "yes",
            "gradient_groups": self._groups,
        }

    @property
    def _groups(self) -> int:
        return gradient_groups(self.options, self.on_gpus)

    def broadcast(self, variables: list[Variable]) -> None:
        self._hvd.broadcast_variables(variables, root_rank=0)

    def gather(self, values: Any) -> np.ndarray:
        import tensorflow as tf

        return self._hvd.allgather(tf.constant([values], tf.float64), name="gather").numpy()

    def apply(self, optimizer: Any, gradients: list[Tensor], variables: list[Variable]) -> None:
        optimizer.apply(self._averaged(gradients), variables)

    def _averaged(self, gradients):
        import tensorflow as tf

        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        hvd = self._hvd
        settings = {
            "op": hvd.Average,
            "compression": getattr(hvd.Compression, self.options["compression"]),
        }
        groups = min(self._groups, len(gradients))
        if not groups:
            return [hvd.allreduce(gradient, **settings) for gradient in gradients]
        averaged = []
        for number in range(groups):
            first, last = (len(gradients) * n // groups for n in (number, number + 1))
            group = gradients[first:last]
            if self.options["packed"]:
                averaged += _unpacked(hvd.allreduce(_packed(group), **settings), group)
            else:
                averaged += hvd.grouped_allreduce(group, **settings)
        return averaged


def gradient_groups(options: dict[str, Any], on_gpus: bool) -> int:
    """The number of groups of gradients; 0: each is reduced by itself once it is ready.

    >>> one = {"overlap": "auto", "gradient_groups": 1}
    >>> [gradient_groups(one, on_gpus) for on_gpus in (False, True)]
    [1, 0]
    """
    asked: int = options["gradient_groups"]
    default = Strategy.OPTIONS["gradient_groups"]
    overlaps = {"no": False, "yes": True, "auto": on_gpus and asked == default}
    return 0 if overlaps[options["overlap"]] else asked


def _packed(tensors):
    import tensorflow as tf

    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def _unpacked(flat, tensors):
    import tensorflow as tf

    parts = tf.split(flat, [tensor.shape.num_elements() for tensor in tensors])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
