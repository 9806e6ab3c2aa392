"""tf.distribute.MirroredStrategy: all devices of one node in one process, synchronous.

Each device holds a copy of the weights; Keras's optimizer sums the gradients
over the devices, so a device's loss is divided by their number.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dlbench.common import networks
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.strategies import Base, Items, Tensor, Variable, distributed


class Strategy(Base):
    reduces = True
    clips_mean = False  # Keras clips before it sums

    @staticmethod
    def unsupported(run: Spec) -> str | None:
        if run.nodes > 1:
            return f"strategy mirrored stays on one node; {run.nodes} need horovod or multiworker"
        return None

    def join(self, spec: Spec) -> None:
        if self.on_gpus:
            networks.check_interfaces("NCCL_SOCKET_IFNAME")
        self.devices_per_process = spec.devices_per_node

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        super().__init__(spec, device, folder)
        import tensorflow as tf

        self._mirrored = tf.distribute.MirroredStrategy(self.devices)

    def scope(self) -> AbstractContextManager[Any]:
        return self._mirrored.scope()

    def settings(self) -> dict[str, Any]:
        ops = self._mirrored.extended._cross_device_ops
        return {"cross_device_ops": type(ops).__name__}

    def loss_scale(self) -> float:
        return 1.0 / self.devices_per_process

    def run(self, function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
        return self._mirrored.run(function, args=arguments)

    def mean(self, value: Tensor) -> Tensor:
        return self._mirrored.reduce("MEAN", value, axis=None)

    def iterator(self, make: Callable[[int | Tensor, int], Any]) -> Iterator[Items]:
        return distributed(self._mirrored, make(self.rank, self.size))

    def constants(self, make: Callable[[], Items]) -> Items | Iterator[Items]:
        parts = zip(*(self._on_each_device(make)), strict=True)
        return tuple(
            self._mirrored.experimental_distribute_values_from_function(
                lambda context, part=part: part[context.replica_id_in_sync_group]
            )
            for part in parts
        )

    def copies(self, variable: Variable) -> list[Variable]:
        return list(self._mirrored.experimental_local_results(variable))

    def _on_each_device(self, make):
        import tensorflow as tf

        made = []
        for device in self.devices:
            with tf.device(device):
                made.append(make())
        return made
