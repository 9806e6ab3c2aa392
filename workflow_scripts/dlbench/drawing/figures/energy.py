"""Energy per image, one row for each condition."""

from pathlib import Path

from dlbench.analysis import estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import energies, row_charts, series, styles
from dlbench.log import event_fields
from dlbench.study import wording

CATEGORY = "Energy"
CAPTION = """
Energy of a run from its start to its end, over the images of all its steps, warm-up included.
Compiling and evaluations are in it. It is that of all GPUs, as they count it themselves, if the
study knows it; else that of the whole node, by its meter; else that of the processors and their
memory, by RAPL: the line below the title says which. Points are geometric means over repeats, each
run one value, with 95 % intervals (Student's t on the logarithm). Runs whose energy rests on under
60 readings, or on readings of a part of the time, are counted beside their row. Runs whose energy
is not known are not drawn.
"""


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    kind = energies.kind_of(runs)
    if kind is None:
        styles.draw_message(stem, energies.NO_ENERGY)
        return
    column = energies.per_image(kind)
    drawn = runs[runs[column].gt(0) | ~runs["status"].isin(event_fields.SUCCEEDED)]
    groups = series.conditions(drawn)
    item = wording.rate_unit(drawn["item_shape"].unique()).item
    subtitle = f"of {energies.KINDS[kind]}"
    with row_charts.figure(stem, groups, f"Energy per {item}", subtitle) as (rows, axes):
        values = [value for row in rows for value in _row(axes, row, column)]
        row_charts.value_axis(axes, values, f"J / {item}", styles.significant)


def _row(axes, row, column):
    joules = row.finished[column].to_numpy(dtype=float)
    if not len(joules):
        row_charts.annotate_row(axes, row, "")
        return []
    estimate = estimates.mean(joules)
    row_charts.interval(axes, row.y, estimate, styles.COLOURS[0])
    label = f"{styles.significant(estimate.value)} J"
    row_charts.annotate_row(axes, row, label, energies.flagged(row.finished))
    return [estimate.value]
