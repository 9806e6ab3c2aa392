"""Figures of scaling: points and intervals are those of the table of speedups."""

import numpy as np
import pytest

from support.results import made_tables
from support.results.drawn_figures import crosses, texts

NO_SERIES = "no series on more than one device"


def scaling_numbers(axes):
    """The (devices, number) of points and the numbers of intervals of one panel, rounded."""
    ticks = axes.get_xticks()
    points = [line for line in axes.lines if line.get_label()[0] != "_"]
    bars = [line for line in axes.lines if line.get_linewidth() == 1.4]
    return (
        sorted(
            (ticks[np.abs(np.log(ticks / x)).argmin()], float(f"{y:.9g}"))  # side by side
            for line in points
            for x, y in zip(*line.get_data(), strict=True)
        ),
        sorted(tuple(float(f"{y:.9g}") for y in line.get_ydata()) for line in bars),
    )


def speedups_numbers(rows, name):
    """The same of the table of speedups."""
    low, high = f"{name}_ci95_low", f"{name}_ci95_high"
    known = rows[rows[low].notna()]
    return (
        sorted((x, float(f"{y:.9g}")) for x, y in zip(rows["devices"], rows[name], strict=True)),
        sorted(
            (float(f"{a:.9g}"), float(f"{b:.9g}"))
            for a, b in zip(known[low], known[high], strict=True)
        ),
    )


@pytest.mark.parametrize(
    "case",
    [
        "published",
        "missing base",
        pytest.param("some failed", marks=pytest.mark.ci),
        pytest.param("12 series", marks=pytest.mark.slow),
    ],
)
def test_scaling_is_that_of_the_table_of_speedups(case, drawn, made):
    speedups = made(case).speedups
    speedups = speedups[(speedups["mode"] == "train") & speedups["epochs"].isna()]
    speedups = speedups[speedups["scaling"].notna()]
    groups = speedups.groupby(["scaling", "model", "dataset"], observed=True)
    rows = np.reshape(drawn("scaling", case), (-1, 2))
    found = [[scaling_numbers(axes) for axes in row] for row in rows]
    assert {axes.get_xlabel() for axes in rows.flat} == {"GPUs (log)"}
    names = ("images_per_second", "efficiency")
    table = [[speedups_numbers(own, name) for name in names] for _, own in groups]
    assert sorted(found) == sorted(table)


@pytest.mark.ci
def test_scaling_has_crosses_where_runs_failed(drawn):
    rows = np.reshape(drawn("scaling", "some failed"), (-1, 2))
    for axes in rows[-1]:
        assert [round(x) for x in crosses(axes)] == [16]
        assert "time\nlimit" in texts(axes)
    assert not any(crosses(axes) for axes in rows[:-1].flat)
    for axes in np.reshape(drawn("scaling", "all failed"), (-1, 2))[:, 0]:
        assert {1, 4} <= set(crosses(axes))
        assert "no run completed" in " ".join(texts(axes))
        assert "mirrored" in texts(axes)


def test_a_base_of_another_strategy_stays_said_where_runs_failed(draw):
    rows = made_tables.study(devices=[1, 2, 4], strategy=["mirrored", "horovod"])
    rows = made_tables.failing(rows, lambda r: r["devices"] == 1 and r["strategy"] == "horovod")
    throughput, efficiency = draw("scaling", rows).axes
    assert crosses(throughput) == [1]
    assert "horovod: point and base differ in strategy" in texts(efficiency)


def test_published_points_of_scaling_are_hollow(drawn):
    for axes in drawn("scaling", "published"):
        faces = [line.get_markerfacecolor() for line in axes.lines if line.get_label()[0] != "_"]
        assert 0 < faces.count("white") < len(faces)


@pytest.mark.parametrize("case", ["nothing", "one device count"])
def test_scaling_without_a_series_is_a_message(case, drawn):
    (axes,) = drawn("scaling", case)
    assert texts(axes) == [NO_SERIES]
    assert axes.figure.get_figheight() < 1


def test_what_was_skipped_is_no_series(draw):
    rows = made_tables.failing(made_tables.study(devices=[1, 2]), lambda row: True, "skipped")
    assert texts(draw("scaling", rows).axes[0]) == [NO_SERIES]
