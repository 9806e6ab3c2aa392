"""How fast a framework's reader yields the items of a dataset on the cores of one device.

Nothing trains: it is the limit that reading, decoding and augmenting set. A core's rate is that of
the device over its cores.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from dlbench.baselines import rounds
from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.reading import converted
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import TASKS

MEASURE = "items_read"
ROUNDS, ROUND_S = 5, 0.2
FIRST_BATCHES = 3  # start workers, fill buffers


def row(spec: Spec, reader: type, folder: str, cores: int) -> dict[str, Any]:
    """The row of the table of baselines of one dataset.

    Args:
        spec: a run that reads it, as attributes.
        reader: how the framework reads converted datasets.
        folder: of the dataset.
        cores: of the device.
    """
    model_module = plugins.load(engine.plugin_kind(spec.framework, "models"), spec.model)
    task = TASKS[model_module.TASK]
    settings = converted.InputSettings(
        spec, None, model_module, task, lambda inputs: inputs, spec.seed
    )
    data: Any = converted.open_dataset(reader, settings, folder)
    batches = iter(data.training_batches(spec.batch_per_device, spec.seed))
    try:
        rates = _rates(batches, spec.batch_per_device)
    finally:
        if hasattr(data, "close"):
            data.close()
    per_core = [rate / cores for rate in rates]
    return rounds.summary(MEASURE, "items/s", per_core, dataset=spec.dataset)


def _rates(
    batches: Iterator[Any], batch: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Items a second, in each round."""
    for _ in range(FIRST_BATCHES):
        next(batches)
    rates = []
    for _ in range(ROUNDS):
        start, items = clock(), 0
        while clock() - start < ROUND_S:
            next(batches)
            items += batch
        rates.append(items / (clock() - start))
    return rates
