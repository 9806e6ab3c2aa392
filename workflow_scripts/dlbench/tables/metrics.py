"""The numbers by which runs are compared and checked, and which direction is better.

They are columns of the runs table, or metrics that a program names itself. Of these a row of the
runs table has a key each (`Metric.column`) where it is compared (dlbench/analysis/measures.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dlbench import Error
from dlbench.common.phrases import did_you_mean
from dlbench.log.metrics import HIGHER, LOWER, NEITHER
from dlbench.tables import table_columns

PREFIX = "metrics."  # of keys of rows, for metrics that programs name
DIFFERS = "differs"  # the verdict where no direction is better


@dataclass(frozen=True)
class Metric:
    """A number of a run that can be compared.

    Attributes:
        column: its key in a row of the runs table.
        direction: the better one; HIGHER, LOWER or NEITHER.
        worse, better: words for a side whose numbers are worse or better.
    """

    name: str
    unit: str
    column: str
    direction: str
    worse: str = "worse"
    better: str = "better"

    @classmethod
    def named(cls, name: str, unit: str, direction: str) -> "Metric":
        """One that a program names itself."""
        return cls(name, unit, PREFIX + name, direction)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The words of `verdict`."""
        return (DIFFERS,) if self.direction == NEITHER else (self.worse, self.better)

    def check_direction(self) -> None:
        """Check that more or less of it is better. Raises Error: neither is known to be."""
        if self.direction == NEITHER:
            raise Error(
                f"{self.name}: whether more or less is better is not known; let its program or "
                "patterns say better: higher or lower"
            )

    def verdict(self, ratio: float) -> str:
        """The verdict on a side whose number is `ratio` times the other's, not 1: a word."""
        if self.direction == NEITHER:
            return DIFFERS
        return self.better if (ratio > 1) == (self.direction == HIGHER) else self.worse


def _metrics():
    speed, score = ("slower", "faster"), ("worse", "better")
    kinds = {
        (HIGHER, speed): (
            "images_per_second",
            "images_per_second_per_device",
            "tokens_per_second",
            "tokens_per_second_per_device",
            "first_epoch_images_per_second",
            "epochs_images_per_second",
        ),
        (LOWER, speed): (
            "step_time_mean_s",
            "step_time_median_s",
            "step_time_p95_s",
            "compile_s",
            "start_s",
            "import_s",
            "first_batch_s",
            "duration_s",
            "cpu_time_s",
            "time_to_accuracy_s",
            "training_time_to_accuracy_s",
        ),
        (HIGHER, score): ("top1", "top5", "iou"),
        (LOWER, score): (
            "final_loss",
            "perplexity",
            "bits_per_byte",
            "energy_j",
            "energy_per_image_j",
            "peak_memory_bytes",
            "peak_allocated_bytes_per_device",
            "peak_reserved_bytes_per_device",
            "peak_used_bytes_per_device",
        ),
    }
    for (direction, verdicts), names in kinds.items():
        for name in set(names) & set(table_columns.RUNS.names):
            unit = (table_columns.RUNS.field(name).metadata or {}).get(b"unit", b"1").decode()
            yield Metric(name, unit, name, direction, *verdicts)


METRICS = {metric.name: metric for metric in _metrics()}
THROUGHPUT = METRICS["images_per_second"]


def find_metric(name: str, named: Mapping[str, Metric] | None = None) -> Metric:
    """The metric of a name.

    `named`: those that programs name, by name; a column of the runs table precedes them. Raises
    Error: there is none; the nearest is named.
    """
    known = {**(named or {}), **METRICS}
    if name not in known:
        raise Error(
            f"no metric {name!r}{did_you_mean(name, known)}; there are: {', '.join(sorted(known))}"
        )
    return known[name]
