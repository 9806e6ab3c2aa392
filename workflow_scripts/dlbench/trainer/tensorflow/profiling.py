"""A trace by TensorFlow's profiler, which saves it in a format of XLA's: see profiling.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from dlbench.trainer import profiling
from dlbench.trainer.profiling import Track


def traced(work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
    """The trace of `work`, as Engine.profile returns it.

    Args:
        folder: for the profiler's files.
    """
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
