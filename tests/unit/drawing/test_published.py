"""Published numbers in figures: hollow, and beside the same from own runs."""

import numpy as np

from support.results import made_tables
from support.results.drawn_figures import has, texts


def test_published_numbers_are_hollow(drawn):
    (axes,) = drawn("batch_size", "published")
    faces = {line.get_markerfacecolor() for line in axes.lines if line.get_marker() != "None"}
    assert "white" in faces and len(faces) == 2


def test_published_numbers_lie_beside_the_same_from_own_runs(drawn, made):
    table = made("published").published
    panels = drawn("published", "published")
    for _, number in table.iterrows():
        assert any(has(axes, number["value"], along="x") for axes in panels)
        if not np.isnan(number["own"]):
            assert any(has(axes, number["own_ci95_low"], along="x") for axes in panels)
    assert table["own"].notna().sum() == len(table) == 10
    assert not table["agrees"].dropna().any()
    shown = {word for axes in panels for word in texts(axes)}
    ratios = table[table["metric"] == "images_per_second"]["own_over_published"]
    assert {
        f"\u00d7{ratio:.2f}" if ratio < 10 else f"\u00d7{ratio:.2g}" for ratio in ratios
    } <= shown


def test_points_are_named_by_their_devices_and_by_nodes_where_these_differ(drawn, draw):
    ours, _ = drawn("published", "published")
    labels = [label.get_text() for label in ours.get_yticklabels()]
    assert labels[:4] == ["batch 16", "1 GPU", "4 GPUs", "16 GPUs"]
    rows = [
        made_tables.run(devices, nodes=nodes, timing_source="published", device_model="K80")
        for devices, nodes in ((1, 1), (4, 1), (8, 2))
    ]
    labels = [label.get_text() for label in draw("published", rows).axes[0].get_yticklabels()]
    assert labels == ["1 GPU on 1 node", "4 GPUs on 1 node", "8 GPUs on 2 nodes"]


def test_without_published_numbers_a_message_says_so(drawn):
    (axes,) = drawn("published", "one repeat")
    assert texts(axes) == ["no published numbers to draw: see `references` in the config"]
