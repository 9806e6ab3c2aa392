"""A trace by JAX's profiler, which saves it in a format of XLA's: see profiling.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from dlbench.trainer import profiling
from dlbench.trainer.profiling import Track


def traced(work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
    """The trace of `work`, as Engine.profile returns it.

    Args:
        folder: for the profiler's files.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # calls of Python functions would be most of the trace
    with jax.profiler.trace(str(folder), profiler_options=options):
        work()
    (path,) = folder.rglob("*.xplane.pb")
    return profiling.chrome(_tracks(jax.profiler.ProfileData.from_file(str(path))))


def _tracks(data: Any) -> Iterator[Track]:
    for plane in data.planes:
        for line in plane.lines:
            events = [
                (event.name, round(1000 * event.start_ns), round(1000 * event.duration_ns), values)
                for event in line.events
                for values in [dict(event.stats)]
            ]
            yield Track(plane.name, line.name, events)
