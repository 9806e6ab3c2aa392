"""All-reduce: points, bars and the line of copies are those of the table of baselines."""

import numpy as np
import pytest

from dlbench.analysis import limits
from dlbench.common import plugins
from dlbench.imports import baseline_importers
from dlbench.tables import parquet_files
from support.results import made_baselines, made_tables
from support.results.drawn_figures import has, saved_figures, texts

OTHER = {"hardware_sha256": "soft", "device_model": "Another CPU"}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A function that draws the figure of some baselines and returns their table and its axes."""
    figures = saved_figures(monkeypatch)

    def draw(*found):
        made_baselines.write(tmp_path, *found)
        tables = made_tables.Tables(tmp_path, tmp_path)
        plugins.load("figures", "communication").draw(tables, tmp_path / "communication")
        return tables.baselines, figures[-1].axes

    return draw


def points(axes):
    """The lines that have points, without what is drawn below them."""
    return [line for line in axes.lines if line.get_marker() not in ("None", None, "")]


def test_points_are_the_medians_of_each_size_in_bandwidth_and_in_time(drawn):
    table, (bandwidth, time) = drawn(made_baselines.exchange(devices=2))
    ((x, y),) = (line.get_data() for line in points(bandwidth))
    np.testing.assert_allclose(x, made_baselines.SIZES)
    np.testing.assert_allclose(y, table["value"])
    ((_, milliseconds),) = (line.get_data() for line in points(time))
    np.testing.assert_allclose(milliseconds, 1e3 * table["time_s"])
    for axes in (bandwidth, time):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in bandwidth.get_xticklabels()][:2] == ["1 KiB", "16 KiB"]


def test_a_line_has_one_strategy_and_number_of_devices_and_its_name_says_so(drawn):
    found = [made_baselines.exchange(devices=devices) for devices in (2, 4)]
    found.append(
        made_baselines.exchange(devices=2, framework="pytorch", strategy="ddp", launcher="local")
    )
    _, (bandwidth, time) = drawn(*found)
    assert len(points(bandwidth)) == len(points(time)) == 3
    legend = time.get_legend()
    labels = [text.get_text() for text in legend.get_texts()] if legend else texts(time)
    labels = " ".join(labels).replace("\n", " ")
    assert "ddp" in labels and "2 CPU devices" in labels and "4 CPU devices" in labels


def test_each_named_node_has_a_line(drawn):
    found = [made_baselines.exchange(devices=2, node=node) for node in ("n1", "n2")]
    _, (bandwidth, time) = drawn(*found)
    assert len(points(bandwidth)) == 2
    legend = time.get_legend()
    labels = [text.get_text() for text in legend.get_texts()] if legend else texts(time)
    assert any("n1" in label for label in labels) and any("n2" in label for label in labels)


def test_a_table_from_before_baselines_could_name_nodes_is_read(tmp_path):
    made_baselines.write(tmp_path, made_baselines.exchange(devices=2))
    path = tmp_path / "baselines.parquet"
    before = parquet_files.read_any(path).drop_columns(["node"])
    parquet_files.write(path, before.to_pylist(), before.schema)
    table = made_tables.Tables(tmp_path, tmp_path).baselines
    assert len(table) == len(made_baselines.SIZES) and table["node"].isna().all()


def test_copies_in_memory_are_a_dashed_line_with_their_number(drawn):
    _, axes = drawn(made_baselines.exchange(devices=2), made_baselines.device())
    assert has(axes[0], 10.0) and not has(axes[1], 10.0)
    assert "dashed: copies in memory, 10 GB/s" in texts(axes[0])


def test_each_machine_has_its_row_and_its_own_copies(drawn):
    _, axes = drawn(
        made_baselines.exchange(devices=2),
        made_baselines.exchange(devices=2, machine=OTHER),
        made_baselines.device(),
    )
    titles = [axis.get_title(loc="left") for axis in axes]
    assert {titles[0], titles[2]} == {"All-reduce \u00b7 A CPU", "All-reduce \u00b7 Another CPU"}
    assert sorted(has(axis, 10.0) for axis in (axes[0], axes[2])) == [False, True]


def test_without_an_all_reduce_the_figure_says_what_measures_it(drawn):
    for found in ((), (made_baselines.device(),)):
        _, (axes,) = drawn(*found)
        assert "snakemake baselines" in texts(axes)[0]


def scaling(tmp_path, monkeypatch, *found):
    """The figure of scaling of a small study on CPUs, with some baselines beside it."""
    settings = {"device_kind": "cpu", "hardware_sha256": "hard", "framework_version": "2.18"}
    settings |= {"parameters": 1_000_000, "model": "lenet5"}
    rows = made_tables.study(devices=[2, 4], strategy="horovod", launcher="horovodrun", **settings)
    rows += made_tables.study(strategy="single", **settings)
    tables = made_tables.write(tmp_path, rows, steps_each=0)
    if found:
        made_baselines.write(tmp_path, *found)
    figures = saved_figures(monkeypatch)
    plugins.load("figures", "scaling").draw(tables, tmp_path / "scaling")
    return figures[0].axes


def dotted(axes):
    return [line for line in axes.lines if line.get_linestyle() == ":"]


def test_scaling_has_a_dotted_line_of_what_is_expected_and_says_what_it_is(tmp_path, monkeypatch):
    found = [made_baselines.exchange(devices=devices) for devices in (2, 4)]
    throughput, efficiency = scaling(tmp_path, monkeypatch, *found)
    (expected,) = dotted(efficiency)
    base_s = 64 / dotted(throughput)[0].get_ydata()[0]
    waits_s = [
        limits.interpolated_s({row["size_bytes"]: row["time_s"] for row in one["rows"]}, 4_000_000)
        for one in found
    ]
    np.testing.assert_allclose(
        expected.get_ydata(), [1.0, *(base_s / (base_s + wait) for wait in waits_s)]
    )
    assert any("dotted: predicted" in word for word in texts(throughput))
    below = [w for w in (*texts(throughput), *texts(efficiency)) if "dashed" in w or "differ" in w]
    assert [word.count("\n") for word in below] == [1, 1]  # so that titles stand side by side


def test_scaling_without_baselines_is_as_it_was(tmp_path, monkeypatch):
    throughput, efficiency = scaling(tmp_path, monkeypatch)
    assert not dotted(throughput) and not dotted(efficiency)
    assert not any("dotted" in word for word in texts(throughput))


def test_an_imported_all_reduce_is_drawn_as_a_machine_of_its_own(tmp_path, drawn):
    log = tmp_path / "osu.txt"
    log.write_text("# OSU MPI Allreduce Latency Test v5.8\n524288    110.83\n1048576    230.90\n")
    settings = {"site": "far", "nodes": 1, "devices_per_node": 2}
    baseline_importers.import_baselines([log], tmp_path / "far", settings)
    _, axes = drawn(made_baselines.exchange(devices=2))
    assert len(axes) == 4
    drawn_sizes = sorted(len(line.get_xdata()) for row in axes[::2] for line in points(row))
    assert drawn_sizes == [2, len(made_baselines.SIZES)]
