"""Energy per image, a row a condition."""

from dlbench import figure_rows, series, statistics
from dlbench import figure_style as style

CATEGORY = "Energy"
CAPTION = """
Energy that all GPUs of a run took from its start to its end, as they count it themselves, over
the images of all its steps, warm-up included. Compiling and evaluations are in it; what hosts
take is not. Points are geometric means over repeats, each run one value, with 95 % intervals
(Student's t on the logarithm). Runs whose devices do not count energy, as on CPUs, are not
drawn.
"""


def draw(tables, stem):
    runs = series.tried(tables.runs)
    counted = runs["energy_per_image_j"].gt(0)
    drawn = runs[counted | ~runs["status"].isin(series.FINISHED)]
    groups = series.conditions(drawn if counted.any() else drawn[:0])
    if not groups:
        style.draw_words(stem, "no energy was recorded: the devices of this study do not count it")
        return
    with figure_rows.figure(stem, groups, "Energy per image") as (rows, axes):
        values = [value for row in rows for value in _row(axes, row)]
        figure_rows.value_axis(axes, values, "J / image", style.significant)


def _row(axes, row):
    joules = row.finished["energy_per_image_j"].to_numpy(dtype=float)
    if not len(joules):
        figure_rows.say(axes, row, "")
        return []
    estimate = statistics.mean(joules)
    figure_rows.interval(axes, row.y, estimate, style.COLOURS[0])
    figure_rows.say(axes, row, f"{style.significant(estimate.value)} J")
    return [estimate.value]
