"""The roofline: points of runs, and the roofs of their devices."""

import numpy as np

from dlbench.drawing import styles
from support.results import made_tables
from support.results.drawn_figures import has, texts

CPU = {"model": "lenet5", "device_model": "a CPU", "device_kind": "cpu"}
BOTH = {"attainable_tflops": 0.05, "attainable_gb_per_s": 1.0}


def subtitle(axes):
    return next(text.get_text() for text in axes.texts if "TFLOP/s" in text.get_text())


def test_a_point_is_a_run_and_a_panel_a_device_in_a_precision(panels):
    rows = made_tables.study(repeats=2, precision=["float32", "float16"])
    axes = panels("utilisation_of_peak", rows)
    assert len(axes) == 2
    for row in rows:
        (own,) = (a for a in axes if row["precision"] in a.get_title(loc="left") + a.get_title())
        assert has(own, row["arithmetic_intensity"], along="x")
        assert has(own, row["achieved_tflops_per_device"])


def test_the_roof_of_memory_rises_to_that_of_products(panels):
    row = made_tables.study(repeats=1, batch_per_device=[4, 512], **CPU)
    (axes,) = panels("utilisation_of_peak", [one | BOTH for one in row])
    (roof,) = (line for line in axes.lines if line.get_color() == styles.GREY)
    x, y = np.asarray(roof.get_data(), dtype=float)
    np.testing.assert_allclose(y, np.minimum(0.05, x * 1.0 / 1e3))
    assert "measured: 0.05 TFLOP/s, 1 GB/s" in subtitle(axes)
    assert "MFU of attainable" in subtitle(axes)


def test_a_stated_peak_is_a_dashed_roof_and_its_share_is_the_mfu(panels):
    (axes,) = panels("utilisation_of_peak", made_tables.study(repeats=1))
    (roof,) = (line for line in axes.lines if line.get_color() == styles.GREY)
    assert roof.get_linestyle() == "--"
    assert "stated: 19.5 TFLOP/s, 1\u2009560 GB/s" in subtitle(axes)
    assert "MFU: " in subtitle(axes)


def test_runs_of_which_nothing_is_known_are_said_not_drawn(draw):
    rows = made_tables.failing(made_tables.study(), lambda row: True)
    (axes,) = draw("utilisation_of_peak", rows).axes
    assert texts(axes) == ["of no run is known what its model computes"]
