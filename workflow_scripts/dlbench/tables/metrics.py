"""The numbers by which campaigns are compared and checked, and which direction is better."""

from dataclasses import dataclass

from dlbench import Error
from dlbench.common.phrases import did_you_mean
from dlbench.tables import table_columns


@dataclass(frozen=True)
class Metric:
    """A number of a run that can be compared.

    Attributes:
        worse, better: words for a side whose numbers are worse or better.
    """

    name: str
    unit: str
    more_is_better: bool
    worse: str
    better: str

    def verdict(self, ratio: float) -> str:
        """`worse` or `better`: the verdict on a side whose number is `ratio` times the other's."""
        return self.better if (ratio > 1) == self.more_is_better else self.worse


def _metrics():
    speed, score = ("slower", "faster"), ("worse", "better")
    kinds = {
        (True, speed): (
            "images_per_second",
            "images_per_second_per_device",
            "tokens_per_second",
            "tokens_per_second_per_device",
            "first_epoch_images_per_second",
            "epochs_images_per_second",
        ),
        (False, speed): (
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
        (True, score): ("top1", "top5", "iou"),
        (False, score): (
            "final_loss",
            "perplexity",
            "energy_j",
            "energy_per_image_j",
            "peak_memory_bytes",
            "peak_allocated_bytes_per_device",
            "peak_reserved_bytes_per_device",
            "peak_used_bytes_per_device",
        ),
    }
    for (more_is_better, verdicts), names in kinds.items():
        for name in set(names) & set(table_columns.RUNS.names):
            unit = (table_columns.RUNS.field(name).metadata or {}).get(b"unit", b"1").decode()
            yield Metric(name, unit, more_is_better, *verdicts)


METRICS = {metric.name: metric for metric in _metrics()}


def find_metric(name: str) -> Metric:
    """The metric of a name.

    Raises:
        Error: there is none; the nearest is named.
    """
    if name not in METRICS:
        raise Error(
            f"no metric {name!r}{did_you_mean(name, METRICS)}; "
            f"there are: {', '.join(sorted(METRICS))}"
        )
    return METRICS[name]
