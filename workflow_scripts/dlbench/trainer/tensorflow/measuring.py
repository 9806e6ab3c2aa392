"""What is measured under TensorFlow beside a run: the machine's rates, and a trace of steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from dlbench.trainer import profiling
from dlbench.trainer.calibration import Repeat, repeated
from dlbench.trainer.profiling import Track
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.pipelines import Data
from dlbench.trainer.tensorflow.strategies import Base

DTYPES = {"bfloat16": tf.bfloat16, "float16": tf.float16}


class Kernels:
    """See dlbench/trainer/calibration.py."""

    reader = Data

    def __init__(self, spec: Spec, strategy: Base):
        self._dtype = DTYPES.get(spec.precision, tf.float32)
        self._device, self._strategy = strategy.devices[0], strategy

    def product(self, size: int) -> Repeat:
        with tf.device(self._device):
            factor = tf.cast(tf.random.uniform((size, size), -1.0, 1.0), self._dtype)
        multiply = repeated(lambda: tf.linalg.matmul(factor, factor), lambda c: c[0, 0].numpy())
        return self._on_device(multiply)

    def copy(self, elements: int) -> tuple[Repeat, int]:
        with tf.device(self._device):
            source, sums = tf.zeros(elements), tf.Variable(tf.zeros(elements))
        add = repeated(lambda: sums.assign_add(source), lambda _: sums[0].numpy())
        return self._on_device(add), 3 * 4 * elements

    def from_host(self, elements: int) -> Repeat:
        with tf.device("CPU:0"):
            source = tf.zeros(elements)
        return self._on_device(repeated(lambda: tf.identity(source), lambda c: c[0].numpy()))

    def collective(self, name: str, elements: int) -> Repeat:
        """By Horovod, or among the replicas of tf.distribute as Keras's optimizer sums.

        Horovod averages with the run's cycle time and compression. What it gathers are gradients of
        embeddings; it compresses none.
        """
        make = _horovods if "horovod" in self._strategy.packages else _of_replicas
        traced = tf.function(make(self._strategy, name, elements)).get_concrete_function()

        def wait(result):
            for part in tf.nest.flatten(result, expand_composites=True):
                part[:1].numpy()

        return repeated(traced, wait)

    def _on_device(self, operations: Repeat) -> Repeat:
        def repeat(count: int) -> None:
            with tf.device(self._device):
                operations(count)

        return repeat


def _of_replicas(strategy, name, elements):
    def operation(part):
        context = tf.distribute.get_replica_context()
        if name == "all_reduce":
            return context.all_reduce(tf.distribute.ReduceOp.SUM, part)
        return context.all_gather(part, axis=0)

    if name not in ("all_reduce", "all_gather"):
        raise NotImplementedError(f"tf.distribute has no {name} between devices")
    devices = strategy.size * strategy.devices_per_process if name == "all_gather" else 1
    values: Any = strategy.constants(lambda: (tf.zeros(elements // devices),))
    return lambda: strategy.run(operation, values)


def _horovods(strategy, name, elements):
    import horovod.tensorflow as hvd

    compression = getattr(hvd.Compression, strategy.options["compression"])
    averaged = {"op": hvd.Average, "compression": compression}
    label = f"baseline_{name}_{elements}"
    values, part = tf.zeros(elements), tf.zeros(elements // hvd.size())
    operations: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: hvd.allreduce(values, **averaged, name=label),
        "all_gather": lambda: hvd.allgather(part, name=label),
        "reduce_scatter": lambda: hvd.reducescatter(values, **averaged, name=label),
    }
    if name not in operations:
        raise NotImplementedError(f"Horovod has no {name} from one process to another")
    return operations[name]


def traced(work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
    """The trace of `work` as Engine.profile returns it; the folder is for the profiler's files."""
    with tf.profiler.experimental.Profile(str(folder)):
        work()
    (path,) = folder.rglob("*.xplane.pb")
    return profiling.chrome(_tracks(xplane_pb2.XSpace.FromString(path.read_bytes())))


def _tracks(space: Any) -> Iterator[Track]:
    for plane in space.planes:
        for line in plane.lines:
            yield Track(plane.name, line.display_name or line.name, list(_events(plane, line)))


def _events(plane: Any, line: Any) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    for event in line.events:
        values = {
            plane.stat_metadata[stat.metadata_id].name: _value(plane, stat) for stat in event.stats
        }
        begin_ps = 1000 * line.timestamp_ns + event.offset_ps
        yield plane.event_metadata[event.metadata_id].name, begin_ps, event.duration_ps, values


def _value(plane, stat):
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else None
    return plane.stat_metadata[value].name if kind == "ref_value" else value
