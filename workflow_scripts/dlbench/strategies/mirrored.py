"""tf.distribute.MirroredStrategy: all devices of one node in one process, synchronous.

Each device holds a copy of the weights; Keras's optimizer sums the gradients
over the devices, so a device's loss is divided by their number.
"""

from dlbench.strategies import Base, _digest


class Strategy(Base):
    @staticmethod
    def unsupported(run):
        if run.nodes > 1:
            return f"strategy mirrored stays on one node; {run.nodes} need horovod"
        return None

    def join(self, devices_per_node):
        self.devices_per_process = devices_per_node

    def __init__(self, device, devices_per_node, threads_per_device):
        import tensorflow as tf

        super().__init__(device, devices_per_node, threads_per_device)
        self._mirrored = tf.distribute.MirroredStrategy(self.devices)

    def scope(self):
        return self._mirrored.scope()

    def settings(self):
        ops = self._mirrored.extended._cross_device_ops
        return {"cross_device_ops": type(ops).__name__}

    def loss_scale(self):
        return 1.0 / self.devices_per_process

    def run(self, function, arguments):
        return self._mirrored.run(function, args=arguments)

    def mean(self, value):
        return self._mirrored.reduce("MEAN", value, axis=None)

    def distribute(self, batches):
        import tensorflow as tf

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return self._mirrored.experimental_distribute_dataset(batches.with_options(options))

    def constants(self, make):
        parts = zip(*(self._on_each_device(make)), strict=True)
        return tuple(
            self._mirrored.experimental_distribute_values_from_function(
                lambda context, part=part: part[context.replica_id_in_sync_group]
            )
            for part in parts
        )

    def weights_sha256(self, variables):
        copies = [self._mirrored.experimental_local_results(v) for v in variables]
        return [_digest(c.numpy() for c in copy) for copy in zip(*copies, strict=True)]

    def _on_each_device(self, make):
        import tensorflow as tf

        made = []
        for device in self.devices:
            with tf.device(device):
                made.append(make())
        return made
