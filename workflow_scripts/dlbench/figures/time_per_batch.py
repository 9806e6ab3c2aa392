"""The time of a batch, normalised: an image's share of it, and relative to the smallest batch."""

from dlbench import figure_panels as panels
from dlbench import figure_style as style
from dlbench import series, sessions, statistics

CATEGORY = "Batch size"
CAPTION = """
Upper panels: the mean time of a step over the images that a device takes in it, which is the
number of devices over the throughput; geometric means over repeats, each run one value, with 95 %
intervals (Student's t on the logarithm). Lower panels: the same relative to the smallest batch
of the series that finished, with Welch's 95 % interval of the ratio; the lower, the more a larger
batch gains. A cross stands for runs that failed. Hollow points are published numbers; half-filled
ones were measured in no session (start of the workflow) with the smallest batch.
"""


def draw(tables, stem):
    runs = series.tried(tables.runs)
    runs = runs.assign(image_s=runs["devices"] / runs["images_per_second"])
    several = series.along("batch_per_device", runs, fewest=2)
    panels.draw(stem, several, _paint, "no series with several batch sizes", rows=2)


def _paint(axes, key, found):
    times, relative = axes
    model, dataset = key
    ends = panels.lines(times, found, lambda s: s.means("image_s"))
    panels.lines(relative, found, _relative)
    apart = sum(_mark_apart(relative, found))
    for axis in axes:
        axis.set_xlabel("batch per device")
    if ends:
        style.logarithmic(times.yaxis, unit=1e-3)
        times.yaxis.set_major_formatter(style.milliseconds)
        relative.set_ylim(0, max(1.05, relative.get_ylim()[1]))
        relative.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        relative.axhline(1, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)
    times.set_ylabel("ms / image and device")
    relative.set_ylabel("relative")
    shared = series.common((s.runs for s in found), ("mode", "devices", "precision"))
    style.heading(
        times, f"{model} \u00b7 {dataset}", ", ".join(filter(None, ["time per image", shared]))
    )
    words = "time per image relative to the smallest batch"
    words += "\nhalf-filled: measured apart" if apart else ""
    style.heading(relative, "", words)
    return ends


def _mark_apart(axes, found):
    """Mark points that share no session with the smallest batch. Yields how many of each series."""
    for number, one in enumerate(found):
        rows = one.finished.dropna(subset="image_s").groupby(one.x)
        sides = {x: runs.to_dict("records") for x, runs in rows}
        points = _relative(one)
        apart = [(x, e.value) for x, e in points if sessions.apart(sides[x], sides[points[0][0]])]
        for x, value in apart:
            at = style.side_by_side([x], number, len(found))
            style.half(axes, at, [value], style.looks(one.index), zorder=3.5)
        yield len(apart)


def _relative(found):
    repeats = found.repeats("image_s")
    if not repeats:
        return []
    first, base = repeats[0]
    points = [(x, statistics.ratio(values, base)) for x, values in repeats[1:]]
    return [(first, statistics.Estimate(1.0, float("nan"), float("nan"), len(base))), *points]
