"""Energy per image, one row for each condition."""

from pathlib import Path

import pandas as pd

from dlbench.analysis import estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields
from dlbench.study import wording

CATEGORY = "Energy"
CAPTION = """
Energy of a run from its start to its end, over the images of all its steps, warm-up included.
Compiling and evaluations are in it. It is that of all GPUs, as they count it themselves, if the
study knows it; else that of the whole node, by its meter; else that of the processors and their
memory: the line below the title says which. Points are geometric means over repeats, each
run one value, with 95 % intervals (Student's t on the logarithm). Runs whose energy rests on under
60 readings, on readings of a part of the time, or is contradicted by another reading, are counted
beside their row (energy_remark). Runs whose energy is not known are not drawn.
"""

# {prefix of the columns: whose energy it is}. A figure draws the first that a study has.
KINDS = {"": "all GPUs", "node_": "the whole node", "host_": "processors and their memory"}
NO_ENERGY = "no energy was recorded: neither GPUs nor processors nor a meter measured it"


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    kind = kind_of(runs)
    if kind is None:
        styles.draw_message(stem, NO_ENERGY)
        return
    column = per_image(kind)
    drawn = runs[runs[column].gt(0) | ~runs["status"].isin(event_fields.SUCCEEDED)]
    groups = series.conditions(drawn)
    item = wording.rate_unit(drawn["item_shape"].unique()).item
    subtitle = f"of {KINDS[kind]}"
    with charts.figure(stem, groups, f"Energy per {item}", subtitle) as (rows, axes):
        values = [value for row in rows for value in _row(axes, row, column)]
        charts.value_axis(axes, values, f"J / {item}", styles.significant)


def _row(axes, row, column):
    joules = row.finished[column].to_numpy(dtype=float)
    if not len(joules):
        charts.annotate_row(axes, row, "")
        return []
    estimate = estimates.mean(joules)
    charts.interval(axes, row.y, estimate, styles.COLOURS[0])
    label = f"{styles.significant(estimate.value)} J"
    charts.annotate_row(axes, row, label, flagged(row.finished))
    return [estimate.value]


def kind_of(runs: pd.DataFrame) -> str | None:
    """The key of KINDS whose energy is drawn: the first that any run has; None: none has one."""
    return next((kind for kind in KINDS if runs[per_image(kind)].gt(0).any()), None)


def per_image(kind: str) -> str:
    """The column with the joules an item."""
    return f"{kind}energy_per_image_j"


def flagged(runs: pd.DataFrame) -> str:
    """As in `2 of 6: energy_remark`: how many runs have a remark on their energy; "" for none."""
    count = int(runs["energy_remark"].notna().sum())
    return f"{count} of {len(runs)}: energy_remark" if count else ""
