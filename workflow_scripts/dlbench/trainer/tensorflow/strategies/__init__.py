"""Strategies of TensorFlow, one file each: how the work of a step is distributed over devices.

A strategy file defines a class `Strategy` on `Base` below. The workflow, whose environment lacks
TensorFlow, reads the attributes of the class; only the trainer makes instances. So TensorFlow is
imported inside the methods.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench.machine import limits
from dlbench.trainer.strategy import BaseStrategy, Spec, digest

if TYPE_CHECKING:  # runs of one process do without
    from dlbench.trainer.cluster import Cluster

Tensor = Any  # TensorFlow's own, as are variables: it is not imported yet
Variable = Any
Items = tuple[Tensor, ...]  # of a batch: (inputs, targets)
Stepper = Callable[[int, int], float]  # (number of a step, `until`) -> its mean loss
# (learning rate of each step, number of the last, `until`) -> the mean loss of each
Windower = Callable[[list[float], int, int], list[float]]


class Base(BaseStrategy):
    """One process on one device; the other strategies change that."""

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
        os.environ["KERAS_BACKEND"] = "tensorflow"  # read when Keras is imported
        super().__init__(spec, device, folder)

    def scope(self) -> AbstractContextManager[Any]:
        """The context in which model and optimizer are built."""
        return contextlib.nullcontext()

    def broadcast(self, variables: list[Variable]) -> None:
        """Broadcast the values of rank 0 to all processes (raw TensorFlow variables)."""

    def apply(self, optimizer: Any, gradients: list[Tensor], variables: list[Variable]) -> None:
        """Average gradients over all devices and update; called in the compiled step.

        The gradients are of a device's scaled loss, the variables Keras's objects.
        """
        optimizer.apply(gradients, variables)

    def loss_scale(self) -> float:
        """The factor by which a device's mean loss is scaled before its gradient is computed.

        It is 1 if gradients are averaged over the devices, 1 / devices if they are summed.
        """
        return 1.0

    def run(self, function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
        """Call `function` on every device of this process; called in the compiled step."""
        return function(*arguments)

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a per-device value over this process; called in the compiled step."""
        return value

    def iterator(self, make: Callable[[int | Tensor, int], Any]) -> Iterator[Items]:
        """An iterator for the compiled step over the batches of this process.

        `make` is a function (rank, size) -> tf.data.Dataset with the batches of one process.
        """
        batches = make(self.rank, self.size)
        if not self.on_gpus:
            return iter(batches)
        import tensorflow as tf

        # Its documentation: what is distributed so is prefetched to the device.
        return distributed(tf.distribute.OneDeviceStrategy(self.devices[0]), batches)

    def constants(self, make: Callable[[], Items]) -> Items | Iterator[Items]:
        """Call `make()` once per device. Returns tensors on each device, or an iterator of them."""
        return make()

    def stepper(self, step: Callable[..., Tensor], arguments: tuple[Any, ...]) -> Stepper:
        """Trace the compiled step. Returns a function that does a step and returns its mean loss.

        The function takes the number of the step and `until`, the number of the next step that an
        evaluation, a checkpoint or the end follows.
        """
        import tensorflow as tf

        # The loss is the function's result: in a function without a result TensorFlow would not
        # remove operations without effect (139 of ResNet-56's 1984). The concrete function is
        # called directly, because looking it up by the arguments costs 20 us.
        traced = tf.function(step, autograph=False).get_concrete_function(*arguments)
        return lambda index, until: float(traced(*arguments))

    def windower(
        self,
        step: Callable[..., Tensor],
        arguments: tuple[Any, ...],
        assign_rate: Callable[[Tensor], None],
    ) -> Windower:
        """Trace a loop of compiled steps. Returns a function that does the steps of a window.

        Step and arguments are as for `stepper`; `assign_rate` sets the learning rate of the next
        step in the compiled loop.
        """
        import numpy as np
        import tensorflow as tf

        @tf.function(autograph=False)
        def window(rates, *arguments):
            def do_step(index, losses):
                assign_rate(rates[index])
                return index + 1, losses.write(index, step(*arguments))

            count = tf.size(rates)
            losses = tf.TensorArray(tf.float32, count)
            # In sequence, because collectives match gradients by their names.
            _, losses = tf.while_loop(
                lambda index, losses: index < count, do_step, (0, losses), parallel_iterations=1
            )
            return losses.stack()

        traced = window.get_concrete_function(tf.TensorSpec([None], tf.float32), *arguments)

        def do_window(rates, last, until):
            with np.errstate(over="ignore"):  # to infinity, as in a variable
                narrow = np.asarray(rates).astype(np.float32)
            return traced(tf.constant(narrow), *arguments).numpy().tolist()

        return do_window

    def copies(self, variable: Variable) -> list[Variable]:
        """A variable's copies on the devices of this process, raw TensorFlow variables."""
        return [variable]

    def weights_sha256(self, variables: list[Variable]) -> list[str]:
        """SHA-256 of all weights' bytes, one digest for each device of this process."""
        copies = zip(*map(self.copies, variables), strict=True)
        return [digest(variable.numpy() for variable in copy) for copy in copies]

    def _configure(self, device, threads_per_device):
        """Make TensorFlow see only the devices of this process, and return their names."""
        import tensorflow as tf

        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
            # Threads of each device: if they shared a pool, the devices of a process would wait for
            # one another (two lost a sixth of their speed on ResNet-56).
            tf.config.threading.set_intra_op_parallelism_threads(threads_per_device)
            tf.config.threading.set_inter_op_parallelism_threads(self.devices_per_process)
            host = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(
                host, [tf.config.LogicalDeviceConfiguration()] * self.devices_per_process
            )
        else:
            tf.config.threading.set_intra_op_parallelism_threads(limits.usable_threads())
            gpus = self.select_gpus(tf.config.list_physical_devices("GPU"))
            tf.config.set_visible_devices(gpus, "GPU")
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
        return self._connected(device)

    def _connected(self, device):
        """Connect to the cluster, and return the names of this process's devices."""
        import tensorflow as tf

        return [d.name for d in tf.config.list_logical_devices(device.upper())]


def distributed(strategy: Any, batches: Any) -> Iterator[Items]:
    """An iterator over a dataset of this process that tf.distribute prefetches to its devices."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return iter(strategy.experimental_distribute_dataset(batches.with_options(options)))


def resolver(cluster: "Cluster") -> Any:
    """TensorFlow's ClusterResolver for a cluster."""
    import tensorflow as tf

    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses),
        task_type=cluster.job,
        task_id=cluster.task,
        rpc_layer="grpc",
    )
