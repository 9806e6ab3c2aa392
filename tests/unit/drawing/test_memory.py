"""The figure of memory: which quantity an axis has, along what, and what there is."""

import pytest

from dlbench.drawing.figures import memory
from support.results import made_tables
from support.results.drawn_figures import crosses, has, texts

CPU = {"model": "lenet5", "device_model": "a CPU", "device_kind": "cpu"}
TEXT = {"model": "gpt_tiny", "dataset": "bytes"}


ALLOCATED = "peak_allocated_bytes_per_device"


@pytest.mark.parametrize(
    ("fields", "unknown", "whose", "column"),
    [
        ({}, (), "allocated on a device", ALLOCATED),
        (CPU, (), "resident set of a process", "peak_memory_bytes"),
        ({}, (ALLOCATED,), "in use on a GPU", "peak_used_bytes_per_device"),  # as NVML saw
    ],
)
def test_it_is_what_the_framework_counted_or_else_what_is_known(
    panels, fields, unknown, whose, column
):
    rows = made_tables.study(repeats=1, batch_per_device=[16, 64], **fields)
    (axes,) = panels("memory", [row | dict.fromkeys(unknown) for row in rows])
    assert axes.get_ylabel() == f"{whose}, GiB (log)"
    assert axes.get_xlabel() == "batch per device (log)"
    assert all(has(axes, row[column]) for row in rows)


def test_a_model_of_text_has_a_panel_along_the_length_of_its_sequences(panels):
    rows = made_tables.study(repeats=1, item_shape=["128", "256", "512"], **TEXT)
    (axes,) = panels("memory", rows)
    assert axes.get_xlabel() == "sequence length, tokens (log)"
    assert all(has(axes, length, along="x") for length in (128, 256, 512))


def test_a_name_has_one_colour_along_batch_and_length(panels):
    rows = made_tables.study(
        repeats=1, framework=["jax", "pytorch"], batch_per_device=[8, 16], item_shape="128", **TEXT
    )
    rows += made_tables.study(
        repeats=1, framework=["pytorch"], batch_per_device=8, item_shape="256", **TEXT
    )
    batch, length = panels("memory", rows)
    assert (batch.get_xlabel(), length.get_xlabel()) == (
        "batch per device (log)",
        "sequence length, tokens (log)",
    )
    entries = batch.figure.legends[0]
    names = [text.get_text() for text in entries.get_texts()]
    colours = [line.get_color() for line in entries.get_lines()]
    assert len(set(names)) == len(names) == len(set(colours))
    drawn_colours = {line.get_color() for line in length.lines if line.get_marker() != "None"}
    assert drawn_colours <= set(colours)


def test_the_memory_that_there_is_is_a_dashed_line_where_it_is_near(panels):
    rows = made_tables.study(repeats=1, batch_per_device=[64, 256], **CPU)
    (axes,) = panels("memory", [row | {"memory_limit_bytes": 2 * 2**30} for row in rows])
    assert has(axes, 2 * 2**30)
    assert any("dashed: the 2 GiB that there are" in text.get_text() for text in axes.texts)
    (axes,) = panels("memory", [row | {"memory_limit_bytes": 2**40} for row in rows])
    assert not has(axes, 2**40)


def test_a_batch_that_did_not_fit_is_a_cross(panels):
    rows = made_tables.study(repeats=1, batch_per_device=[16, 64, 256])
    (axes,) = panels(
        "memory", made_tables.failing(rows, lambda row: row["batch_per_device"] == 256)
    )
    assert crosses(axes) == [256]


def test_runs_whose_memory_is_not_known_are_said_not_drawn(draw):
    paper = {"timing_source": "published", "site": "paper"}
    rows = made_tables.study(repeats=1, batch_per_device=[16, 64], **paper)
    (axes,) = draw("memory", rows).axes
    assert texts(axes) == [memory.EMPTY_MESSAGE]
