"""Energy per image, one row for each condition."""

from pathlib import Path

from dlbench.analysis import estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import row_charts, series, styles
from dlbench.log import event_fields
from dlbench.study import item_names

CATEGORY = "Energy"
CAPTION = """
Energy that all GPUs of a run took from its start to its end, as they count it themselves, over
the images of all its steps, warm-up included. Compiling and evaluations are in it; what hosts
take is not. Points are geometric means over repeats, each run one value, with 95 % intervals
(Student's t on the logarithm). Runs whose devices do not count energy, as on CPUs, are not
drawn.
"""


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.begun_runs(tables.runs)
    counted = runs["energy_per_image_j"].gt(0)
    drawn = runs[counted | ~runs["status"].isin(event_fields.ENDED_WELL)]
    groups = series.conditions(drawn if counted.any() else drawn[:0])
    if not groups:
        styles.draw_words(stem, "no energy was recorded: the devices of this study do not count it")
        return
    item = item_names.unit(drawn["item_shape"].unique()).item
    with row_charts.figure(stem, groups, f"Energy per {item}") as (rows, axes):
        values = [value for row in rows for value in _row(axes, row)]
        row_charts.value_axis(axes, values, f"J / {item}", styles.significant)


def _row(axes, row):
    joules = row.finished["energy_per_image_j"].to_numpy(dtype=float)
    if not len(joules):
        row_charts.say(axes, row, "")
        return []
    estimate = estimates.mean(joules)
    row_charts.interval(axes, row.y, estimate, styles.COLOURS[0])
    row_charts.say(axes, row, f"{styles.significant(estimate.value)} J")
    return [estimate.value]
