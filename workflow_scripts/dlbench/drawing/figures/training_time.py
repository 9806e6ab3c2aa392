"""Time of trainings of whole epochs against the number of devices."""

from pathlib import Path

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Learning"
CAPTION = """
Wall-clock time of the runs that train for epochs, compiling and evaluations included; starting
the container and loading the framework lie before it. Points are geometric means over repeats,
each run one value; bars are 95 % intervals (Student's t on the logarithm of the time). The
dashed line is the time on the fewest devices of the series, divided by how many times more
devices there are; it is left out where series are many. A cross stands for runs that failed.
Hollow points are published numbers.
"""


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[runs["epochs"].notna()]
    charts.draw(
        stem,
        series.series_along("devices", runs),
        _paint,
        "no run of this study trains for epochs",
        size=(4.8, 3.6),
    )


def _paint(axis, key, all_series):
    model, dataset = key
    ends = charts.lines(axis, all_series, lambda s: s.means("duration_s"))
    longest = max((e.value for s in all_series for _, e in s.means("duration_s")), default=1)
    unit, seconds = styles.time_unit(longest)
    few = len(all_series) <= styles.MAX_DIRECT_LABELS
    for number, line in enumerate(all_series):
        points = line.means("duration_s")
        if len(points) > 1 and few:
            (first, longest), (most, _) = points[0], points[-1]
            axis.plot(
                styles.side_by_side([first, most], number, len(all_series)),
                [longest.value, longest.value * first / most],
                color=charts.marks(line)["color"],
                linestyle="--",
                linewidth=1.2,
                alpha=0.6,
                zorder=1,
            )
    if ends:
        styles.logarithmic(axis.yaxis, seconds)
        axis.yaxis.set_major_formatter(lambda value, _: styles.significant(value / seconds))
    axis.set_ylabel(f"time, {unit}")
    axis.set_xlabel("devices")
    epochs = series.common((s.runs for s in all_series), ("epochs", "batch_per_device"))
    subtitle = " \u00b7 ".join(filter(None, [epochs, "dashed: in proportion to devices" * few]))
    styles.heading(axis, f"{model} \u00b7 {dataset}", subtitle)
    return ends
