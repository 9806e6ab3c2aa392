"""Check that the numbers of a run agree: its rate must be its batch over the time of a step, and
its FLOP/s at most the peak of its device.

If not, one was misread: a rate of all devices beside the steps of one, tokens taken for sequences,
the batch of one process, the FLOPs of an item, the precision. Nobody can tell which, so the column
`contradicts` of the row says so, and the row enters no mean, speedup, comparison or finding.
"""

from collections.abc import Mapping
from typing import Any

MAX_DIFFERENCE = 0.02  # relative, beyond what `rate_uncertainty` allows
MAX_DEVICES = 2**20  # by which a ratio may be explained
REASON = "contradicts"
COMPARED = ("images_per_second", "step_time_mean_s", "global_batch")
WITHHELD = {
    *("images_per_second", "images_per_second_per_device", "copy_sd_images_per_second"),
    *("tokens_per_second", "tokens_per_second_per_device", "synthetic_ratio", "synthetic_runs"),
    *("first_epoch_images_per_second", "epochs_images_per_second", "epochs_check"),
    *("step_time_mean_s", "step_time_sd_s", "step_time_median_s", "step_time_p95_s"),
    *("step_time_mad_s", "achieved_tflops_per_device", "mfu", "mfu_of_attainable"),
    *("hfu", "hfu_of_attainable", "energy_per_image_j", "host_energy_per_image_j"),
    "node_energy_per_image_j",
}


def marked(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the runs table with `contradicts`, if its numbers contradict one another.

    >>> row = {"images_per_second": 48.0, "global_batch": 32, "step_time_mean_s": 5.0}
    >>> marked(row).keys() - row.keys()
    {'contradicts'}
    """
    reason = row.get(REASON) or describe_contradiction(row) or _above_peak(row)
    return {**row, REASON: reason} if reason else dict(row)


def withheld(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `marked` for means and comparisons: contradictory numbers are None.

    >>> row = marked({"images_per_second": 48.0, "global_batch": 32, "step_time_mean_s": 5.0})
    >>> withheld(row)["images_per_second"], withheld(row)["global_batch"]
    (None, 32)
    """
    return {**row, **(dict.fromkeys(row.keys() & WITHHELD) if row.get(REASON) else {})}


def describe_contradiction(row: Mapping[str, Any]) -> str:
    """How rate, batch and step time of a row of the runs table differ; "" where they agree.

    They agree if one of them is unknown. For copies that are trained at once the rate is the mean
    of their rates, which exceeds the rate by the mean time by about the square of their scatter.

    >>> describe_contradiction(
    ...     {"images_per_second": 48.05, "global_batch": 32, "step_time_mean_s": 5.33}
    ... )
    'images_per_second is 48.05, global_batch / step_time_mean_s is 32 / 5.33 s = 6.004: 8 times \
as much, as if one were of a single device or process and the other of 8'
    """
    rate, time_s, batch = (_positive(row, name) for name in COMPARED)
    if not (rate and time_s and batch):
        return ""
    ratio = rate * time_s / batch
    scatter = (_positive(row, "copy_sd_images_per_second") or 0.0) / rate
    allowed = MAX_DIFFERENCE + (_positive(row, "rate_uncertainty") or 0.0) + 2 * scatter**2
    if 1 / (1 + allowed) <= ratio <= 1 + allowed:
        return ""
    larger = max(ratio, 1 / ratio)
    difference = f"{larger:.3g} times as much"
    if larger < 2:
        difference = f"{100 * (larger - 1):.3g} % apart"
    whole = round(larger) if larger < MAX_DEVICES else 0
    if whole >= 2 and abs(larger / whole - 1) <= MAX_DIFFERENCE:
        difference += f", as if one were of a single device or process and the other of {whole}"
    return (
        f"images_per_second is {rate:.4g}, global_batch / step_time_mean_s is {batch:g} / "
        f"{time_s:.4g} s = {batch / time_s:.4g}: {difference}"
    )


def describe_excess(row: Mapping[str, Any], steps: int | None, total_s: float) -> str:
    """How the steps of a row took longer than the time measured around them; "" if they fit in.

    Args:
        steps: how many there are, where the row has no `steps_measured`; None if unknown.
        total_s: time from the start of the program to its end.

    >>> row = {"images_per_second": 48.0, "global_batch": 32, "step_time_mean_s": 0.667}
    >>> describe_excess(row, 100, 70.0)
    ''
    >>> describe_excess(row, 100, 7.0)
    '100 steps of 0.667 s by its log are 66.7 s, and the whole program took 7 s'
    """
    rate, time_s, batch = (_positive(row, name) for name in COMPARED)
    if rate and batch:
        time_s = max(time_s or 0.0, batch / rate)
    steps = row.get("steps_measured") or steps
    if not (steps and time_s):
        return ""
    allowed = MAX_DIFFERENCE + (_positive(row, "rate_uncertainty") or 0.0)
    if steps * time_s <= (1 + allowed) * total_s:
        return ""
    return (
        f"{steps:g} steps of {time_s:.4g} s by its log are {steps * time_s:.4g} s, and the whole "
        f"program took {total_s:.4g} s"
    )


def _above_peak(row):
    """How a row has more FLOP/s than its device can; "" if it has not."""
    above = [f"{name} is {row[name]:.3g}" for name in ("mfu", "hfu") if _positive(row, name, 1)]
    return f"{above[0]}, above 1: FLOPs of an item, precision or peak are wrong" if above else ""


def _positive(row, name, least=0):
    value = row.get(name)
    return value if isinstance(value, int | float) and value > least else None
