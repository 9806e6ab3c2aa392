"""The figure of nodes: a row each, the slowest first, slower ones marked, the margin behind."""

import numpy as np
from matplotlib.colors import to_hex

from dlbench.drawing.figures import nodes
from support.project import page_figures
from support.results import made_tables


def labels(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_nodes_are_rows_the_slowest_first_and_slower_ones_are_marked(panels):
    (axes,) = panels("nodes", page_figures.screened())
    assert labels(axes)[0] == "gpu07" and len(labels(axes)) == 12
    marked = [
        text for text in axes.texts if to_hex(text.get_color()) == to_hex(nodes.SLOWER_COLOUR)
    ]
    assert [text.get_text() for text in marked] == ["\u22124.5 %, 5 runs, slower"]
    points = [line for line in axes.lines if line.get_marker() == "D"]
    assert [float(np.round(line.get_xdata()[0], 1)) for line in points] == [-4.5]


def test_the_margin_is_a_field_of_equal_length_on_the_logarithm(panels):
    (axes,) = panels("nodes", page_figures.screened())
    (field,) = (
        patch for patch in axes.patches if to_hex(patch.get_facecolor()) == to_hex(nodes.BAND)
    )
    left, right = field.get_x(), field.get_x() + field.get_width()
    assert np.isclose((1 + left / 100) * (1 + right / 100), 1) and np.isclose(right, 1)


def test_of_many_nodes_the_slowest_are_drawn_and_the_rest_counted(panels):
    rows = [
        made_tables.run(host=f"n{number:03}", repeat=repeat, images_per_second=100.0 + number)
        for number in range(nodes.MAX_NODES + 5)
        for repeat in (1, 2)
    ]
    (axes,) = panels("nodes", rows)
    assert labels(axes) == [f"n{number:03}" for number in range(nodes.MAX_NODES)]
    assert "5 faster ones not drawn" in axes.get_title("left") + "".join(
        text.get_text() for text in axes.texts + axes.figure.texts
    )


def test_nodes_of_each_kind_of_device_stand_under_its_name(panels):
    rows = page_figures.screened()
    old = [
        row | {"device_model": "V100", "images_per_second": 90.0 + row["repeat"]} for row in rows
    ]
    (axes,) = panels("nodes", [*rows, *old])
    headings = [label for label in labels(axes) if ":" in label]
    assert headings == ["here: A100", "here: V100"] and len(labels(axes)) == 26
