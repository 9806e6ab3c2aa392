"""Strategies, one file each: how the work of a step is spread over devices.

A strategy file defines a class `Strategy` on `Base` below. What the class says
about itself is read by the workflow, where TensorFlow is not installed; its
instances live in the trainer. So TensorFlow is imported inside the methods.
"""

import contextlib
import hashlib
import os


class Base:
    """One process on one device: what the other strategies change."""

    packages = ()  # needed beside TensorFlow in the trainer's environment
    launcher = "none"  # the one that runs without a `launcher` get

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

    def __init__(self, device, devices_per_node, threads_per_device):
        """Join the other processes and set up the devices of this one.

        Args:
            device: "cpu" or "gpu".
            devices_per_node: as in the run.
            threads_per_device: cores of a CPU device.
        """
        self.join(devices_per_node)
        self.cores = None
        if device == "cpu":
            self.cores = self._pin(threads_per_device)
        self.devices = self._configure(device, threads_per_device)

    def join(self, devices_per_node):
        """Set rank, size, local_rank and devices_per_process."""

    def scope(self):
        """The context in which model and optimizer are made."""
        return contextlib.nullcontext()

    def settings(self):
        """What sets this strategy's speed, for the log."""
        return {}

    def broadcast(self, variables):
        """Give all processes the values that rank 0 has (raw TensorFlow variables)."""

    def barrier(self):
        """Wait for the other processes."""

    def reduce(self, gradients):
        """Average gradients over processes; called in the compiled step."""
        return gradients

    def loss_scale(self):
        """What a device's mean loss is multiplied with before its gradient is taken."""
        return 1.0

    def run(self, function, arguments):
        """Call `function` on every device of this process; called in the compiled step."""
        return function(*arguments)

    def mean(self, value):
        """The mean of a per-device value over this process; called in the compiled step."""
        return value

    def distribute(self, batches):
        """Split each batch of a dataset over the devices of this process."""
        return batches

    def constants(self, make):
        """`make()` once per device: a tuple of tensors that lie there."""
        return make()

    def weights_sha256(self, variables):
        """One digest of all weights for each device of this process."""
        return [_digest(variable.numpy() for variable in variables)]

    def _pin(self, threads_per_device):
        """Keep this process to the cores that make up its CPU devices.

        So a device is the same thing under every strategy, and a one-device run
        has no second core for its input pipeline.
        """
        cores = sorted(os.sched_getaffinity(0))
        wanted = threads_per_device * self.devices_per_process
        mine = cores[self.local_rank * wanted : (self.local_rank + 1) * wanted]
        if len(mine) < wanted:
            raise RuntimeError(
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
            tf.config.threading.set_intra_op_parallelism_threads(
                threads_per_device * self.devices_per_process
            )
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
                raise RuntimeError(
                    f"rank {self.rank} needs {self.devices_per_process} GPUs from number {first} "
                    f"on; TensorFlow sees {len(gpus)} in all (CUDA_VISIBLE_DEVICES="
                    f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')})"
                )
            tf.config.set_visible_devices(mine, "GPU")
            for gpu in mine:
                tf.config.experimental.set_memory_growth(gpu, True)
        return [d.name for d in tf.config.list_logical_devices(device.upper())]


def _digest(arrays):
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
