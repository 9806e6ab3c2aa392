"""Strategies, one file each: how the work of a step is spread over devices.

A strategy file defines a class `Strategy` on `Base` below. What the class says
about itself is read by the workflow, where TensorFlow is not installed; its
instances live in the trainer. So TensorFlow is imported inside the methods.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np

from dlbench import Error
from dlbench.common import options
from dlbench.machine import gpu_readings


class Base:
    """One process on one device: what the other strategies change."""

    packages: tuple[str, ...] = ()  # needed beside TensorFlow in the trainer's environment
    launcher = "none"  # the one that runs without a `launcher` get
    OPTIONS = {}  # of `strategy_options`: see dlbench/common/options.py

    rank, size = 0, 1  # of this process among all processes
    local_rank = 0  # of this process among those of its node
    devices_per_process = 1

    @staticmethod
    def unsupported(run):
        """Why this strategy cannot do a run, or None."""
        return None

    @staticmethod
    def processes_per_node(run):
        return 1

    @classmethod
    def jobs(cls, run):
        """How many processes of each kind a run has, in the order of their ranks."""
        return {"worker": run.nodes * cls.processes_per_node(run)}

    @classmethod
    def parsed(cls, run):
        """The options of a run with their values."""
        return options.parse("strategy", run.strategy, cls.OPTIONS, run.strategy_options)

    def __init__(self, spec, device, folder="."):
        """Join the other processes and set up the devices of this one.

        Args:
            spec: the run's fields as attributes.
            device: "cpu" or "gpu".
            folder: where the run's log lies, for further files.
        """
        self.options = self.parsed(spec)
        self.folder = Path(folder)
        self.join(spec)
        self.cores = None
        if device == "cpu":
            self.cores = self._pin(spec.threads_per_device)
        self.devices = self._configure(device, spec.threads_per_device)

    def join(self, spec):
        """Set rank, size, local_rank and devices_per_process."""

    def serve(self, finished):
        """Where this process only serves others, do so until `finished()`. Returns if it did."""
        return False

    def scope(self):
        """The context in which model and optimizer are made."""
        return contextlib.nullcontext()

    def settings(self):
        """What sets this strategy's speed, for the log."""
        return dict(self.options)

    def broadcast(self, variables):
        """Give all processes the values that rank 0 has (raw TensorFlow variables)."""

    def gather(self, values):
        """The numbers of all processes: from (n,) on each to (size, n) on each, float64.

        No process returns before all have called.
        """
        return np.asarray([values], np.float64)

    def apply(self, optimizer, gradients, variables):
        """Average gradients over all devices and update; called in the compiled step."""
        optimizer.apply(gradients, variables)

    def loss_scale(self):
        """What a device's mean loss is multiplied with before its gradient is taken."""
        return 1.0

    def run(self, function, arguments):
        """Call `function` on every device of this process; called in the compiled step."""
        return function(*arguments)

    def mean(self, value):
        """The mean of a per-device value over this process; called in the compiled step."""
        return value

    def iterator(self, make):
        """An iterator for the compiled step over the batches of this process.

        Args:
            make: function (rank, size) -> tf.data.Dataset with the batches of one process.
        """
        return iter(make(self.rank, self.size))

    def constants(self, make):
        """`make()` once per device: a tuple of tensors that lie there, or an iterator."""
        return make()

    def stepper(self, step, arguments):
        """Trace the compiled step. Returns a function that does one and gives its mean loss.

        That function gets the number of the step and of the next one after which something
        else is done (an evaluation, a checkpoint, the end).
        """
        import tensorflow as tf

        # Left in a variable and called directly: on ResNet-56 a step that returns its loss took
        # 2 % longer, and finding the graph for the arguments anew costs 20 us.
        loss = tf.Variable(0.0, trainable=False)

        @tf.function
        def measured(*arguments):
            loss.assign(step(*arguments))

        traced = measured.get_concrete_function(*arguments)

        def one(index, until):
            traced(*arguments)
            return float(tf.raw_ops.ReadVariableOp(resource=loss.handle, dtype=tf.float32))

        return one

    def gpus(self):
        """NVML's selectors of the GPUs of this process, which are sampled."""
        if "GPU" not in self.devices[0]:
            return ()
        first = self.local_rank * self.devices_per_process
        return gpu_readings.visible_gpus(first, self.devices_per_process)

    def copies(self, variable):
        """A variable's copies on the devices of this process, raw TensorFlow variables."""
        return [variable]

    def weights_sha256(self, variables):
        """One digest of all weights for each device of this process."""
        copies = zip(*map(self.copies, variables), strict=True)
        return [_digest(variable.numpy() for variable in copy) for copy in copies]

    def _pin(self, threads_per_device):
        """Keep this process to the cores that make up its CPU devices.

        So a device is the same thing under every strategy, and a one-device run
        has no second core for its input pipeline.
        """
        cores = sorted(os.sched_getaffinity(0))
        wanted = threads_per_device * self.devices_per_process
        mine = cores[self.local_rank * wanted : (self.local_rank + 1) * wanted]
        if len(mine) < wanted:
            raise Error(
                f"rank {self.rank} needs {wanted} cores; {len(cores)} are left to all processes "
                "of this node: fewer devices or threads_per_device, or a wider CPU mask"
            )
        os.sched_setaffinity(0, mine)
        return mine

    def _configure(self, device, threads_per_device):
        """Make TensorFlow see exactly the devices of this process, and return their names."""
        import tensorflow as tf

        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
            # Of each device: with a pool for all, the devices of one process wait for one another
            # (two lost a sixth of their speed on ResNet-56).
            tf.config.threading.set_intra_op_parallelism_threads(threads_per_device)
            tf.config.threading.set_inter_op_parallelism_threads(self.devices_per_process)
            host = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(
                host, [tf.config.LogicalDeviceConfiguration()] * self.devices_per_process
            )
        else:
            gpus = tf.config.list_physical_devices("GPU")
            first = self.local_rank * self.devices_per_process
            mine = gpus[first : first + self.devices_per_process]
            if len(mine) < self.devices_per_process:
                raise Error(
                    f"rank {self.rank} needs {self.devices_per_process} GPUs from number {first} "
                    f"on; TensorFlow sees {len(gpus)} in all (CUDA_VISIBLE_DEVICES="
                    f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')})"
                )
            tf.config.set_visible_devices(mine, "GPU")
            for gpu in mine:
                tf.config.experimental.set_memory_growth(gpu, True)
        return self._connected(device)

    def _connected(self, device):
        """The names of this process's devices, once it is one of the others' cluster."""
        import tensorflow as tf

        return [d.name for d in tf.config.list_logical_devices(device.upper())]


def _digest(arrays):
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
