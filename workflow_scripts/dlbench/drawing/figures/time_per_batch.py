"""Time of a batch per image, and the same relative to the smallest batch."""

from pathlib import Path

from dlbench.analysis import estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Batch size"
CAPTION = """
Upper panels: the mean time of a step over the images that a device takes in it, which is the
number of devices over the throughput; geometric means over repeats, each run one value, with 95 %
intervals (Student's t on the logarithm). Lower panels: the same relative to the smallest batch
of the series that completed, with Welch's 95 % interval of the ratio; the lower, the more a larger
batch gains. A cross stands for runs that failed. Hollow points are published numbers. Half-filled:
point and smallest batch were never run in one session (start of the workflow), and drift between
their sessions may exceed the margin. Where the drift is estimated, the lower panels are corrected
for it and have its uncertainty.
"""


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs.assign(image_s=runs["devices"] / runs["images_per_second"])
    several = series.series_along("batch_per_device", runs, minimum=2)
    drift = tables.drift_of(runs)

    def paint(axes, key, all_series):
        return _paint(axes, key, all_series, drift)

    charts.draw(stem, several, paint, "no series with several batch sizes", rows=2)


def _paint(axes, key, all_series, drift):
    times, relative = axes
    model, dataset = key
    ends = charts.lines(times, all_series, lambda s: s.means("image_s"))
    points = [_relative(line, drift) for line in all_series]
    values = {
        line.name: [pair[:2] for pair in own] for line, own in zip(all_series, points, strict=True)
    }
    charts.lines(relative, all_series, lambda line: values[line.name])
    apart = sum(_mark_apart(relative, all_series, points))
    for axis in axes:
        axis.set_xlabel("batch per device")
    if ends:
        styles.logarithmic(times.yaxis, unit=1e-3)
        times.yaxis.set_major_formatter(styles.milliseconds)
        relative.set_ylim(0, max(1.05, relative.get_ylim()[1]))
        relative.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        relative.axhline(1, color=styles.GREY, linestyle="--", linewidth=1.2, zorder=1)
    item = series.rate_unit(all_series).item
    times.set_ylabel(f"ms / {item} and device")
    relative.set_ylabel("relative")
    shared = series.common((s.runs for s in all_series), ("mode", "devices", "precision"))
    styles.heading(
        times, f"{model} \u00b7 {dataset}", ", ".join(filter(None, [f"time per {item}", shared]))
    )
    subtitle = f"time per {item} relative to the smallest batch"
    subtitle += "\nhalf-filled: measured apart" if apart else ""
    styles.heading(relative, "", subtitle)
    return ends


def _mark_apart(axes, all_series, points):
    """Mark points that may not be compared with the smallest batch. Yields how many of a series."""
    for number, (line, own) in enumerate(zip(all_series, points, strict=True)):
        apart = [(x, estimate.value) for x, estimate, sides in own if sides and sides.flags]
        for x, value in apart:
            at = styles.side_by_side([x], number, len(all_series))
            styles.half(axes, at, [value], styles.looks(line.index), zorder=3.5)
        yield len(apart)


def _relative(line, drift):
    """[(x, Estimate of the time over that of the smallest, Sides or None for it itself), ...]"""
    rows = line.finished.dropna(subset="image_s").groupby(line.x)
    repeats = [(x, runs.to_dict("records")) for x, runs in rows]
    if not repeats:
        return []
    first, base = repeats[0]
    points = [(first, estimates.Estimate(1.0, float("nan"), float("nan"), len(base)), None)]
    for x, runs in repeats[1:]:
        sides = drift.compare(base, runs)  # times, which are the smaller the more items a second
        points.append((x, sides.difference.ratio, sides))
    return points
