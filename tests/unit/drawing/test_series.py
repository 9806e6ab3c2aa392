"""Series of figures: which runs belong to one, its colour, its names and its marks."""

import numpy as np
import pandas as pd
import pytest

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.tables import parquet_files, table_columns
from support.results import made_tables
from support.results.drawn_figures import texts


def test_failures_are_crosses_with_their_number_and_reason(drawn):
    panels = [a for a in drawn("batch_size", "some failed") if "vgg16" in a.get_title(loc="left")]
    for axes in panels:
        assert any(line.get_marker() == "x" for line in axes.lines)
        assert "4 of 6 runs\nout of\nmemory" in texts(axes)


@pytest.mark.ci
def test_what_is_not_drawn_is_counted_in_a_note(drawn):
    axes = drawn("time_per_batch", "40 series")[0]
    title = axes.figure.legends[0].get_title().get_text()
    assert title == "10 of 50 series not drawn: see runs.parquet"


def test_a_series_has_one_colour_in_all_panels(made):
    runs = series.started_runs(made("some failed").runs)
    found = series.series_along("batch_per_device", runs, minimum=2)
    assert len(found) == 2
    for one, other in zip(*found.values(), strict=True):
        assert charts.marks(one) == charts.marks(other)


def test_what_a_publication_does_not_state_names_no_series():
    own = made_tables.study(devices=[1, 2], repeats=1)
    paper = [
        dict.fromkeys(table_columns.RUNS.names)
        | {name: row[name] for name in ("run_id", "model", "dataset", "mode", "devices", "status")}
        | {"timing_source": "published", "site": "paper", "images_per_second": 1.0}
        for row in own
    ]
    runs = series.started_runs(pd.DataFrame(own + paper, columns=table_columns.RUNS.names))
    names = [s.name for s in next(iter(series.series_along("devices", runs).values()))]
    assert names == ["here", "paper, published"]


def test_a_run_that_failed_before_its_device_was_known_belongs_to_its_series():
    rows = [made_tables.run(batch_per_device=b, status=s) for b, s in ((16, "ok"), (32, "oom"))]
    rows[1]["device_model"] = None
    runs = series.started_runs(pd.DataFrame(rows, columns=table_columns.RUNS.names))
    (found,) = next(iter(series.series_along("batch_per_device", runs).values()))
    assert [x for x, *_ in found.failures()] == [32]


def names_of(rows):
    """Of each panel, the names of its series along the batch."""
    runs = series.started_runs(pd.DataFrame(rows, columns=table_columns.RUNS.names))
    return [
        [s.name for s in all_] for all_ in series.series_along("batch_per_device", runs).values()
    ]


def test_a_version_is_named_only_where_a_framework_has_several():
    rows = [made_tables.run(framework=f, framework_version=v) for f, v in
            (("jax", "0.10"), ("tensorflow", "2.18"))]  # fmt: skip
    assert names_of(rows) == [["jax", "tensorflow"]]
    rows.append(made_tables.run(framework="jax", framework_version="0.9"))
    assert names_of(rows) == [["jax, version 0.10", "jax, version 0.9", "tensorflow, version 2.18"]]


def test_a_shape_is_named_only_where_the_items_of_a_dataset_have_several():
    text = {"model": "lstm_ptb", "dataset": "ptb"}
    rows = [made_tables.run(framework=f, **text, item_shape=s)
            for f in ("jax", "tensorflow") for s in ("20", "40")]  # fmt: skip
    rows += [made_tables.run(framework=f, model="lenet5", item_shape="32x32x1")
             for f in ("jax", "tensorflow")]  # fmt: skip
    assert names_of(rows) == [
        ["jax", "tensorflow"],
        ["20 tokens, jax", "20 tokens, tensorflow", "40 tokens, jax", "40 tokens, tensorflow"],
    ]


def test_an_environment_is_named_only_where_it_is_not_that_of_the_framework():
    def names(*pairs):
        rows = [made_tables.run(framework=f, environment=e) for f, e in pairs]
        runs = series.started_runs(pd.DataFrame(rows, columns=table_columns.RUNS.names))
        return [s.name for s in next(iter(series.series_along("devices", runs).values()))]

    own = [("jax", "jax"), ("pytorch", "pytorch"), ("tensorflow", "train")]
    assert names(*own) == ["jax", "pytorch", "tensorflow"]
    assert names(*own, ("jax", "mine"))[:2] == ["jax", "jax, environment mine"]
    # Where frameworks do not differ, only the environment tells runs apart.
    assert names(("jax", "jax"), ("jax", "mine")) == ["environment jax", "environment mine"]


def half_filled(axes):
    """x of the markers of what was measured apart."""
    lines = [line for line in axes.lines if line.get_fillstyle() == "bottom"]
    return [float(np.atleast_1d(line.get_xdata())[0]) for line in lines]


@pytest.mark.ci
def test_what_was_measured_apart_has_half_filled_markers(draw):
    rows = made_tables.study(devices=[1, 2, 4]) + made_tables.study(dataset="imagenet")
    rows += made_tables.study(strategy="single", batch_per_device=[16, 64])
    for row in rows:
        later = row["devices"] == 4 or row["dataset"] == "imagenet" or row["strategy"] == "single"
        row["session"] = "B" if later and row["batch_per_device"] == 64 else "A"

    def drawn(name, rows=rows):
        return draw(name, rows).axes

    throughput, efficiency = drawn("scaling")
    for axes in (throughput, efficiency):
        assert list(map(round, half_filled(axes))) == [4]
    assert any("half-filled: measured apart" in text for text in texts(efficiency))
    times, relative = drawn("time_per_batch")
    assert (half_filled(times), list(map(round, half_filled(relative)))) == ([], [64])
    (axes,) = drawn("real_vs_synthetic")
    assert len(half_filled(axes)) == 2 and "measured apart" in texts(axes)
    # Where sentinels show no drift, it is drawn as all else.
    bases = [
        row
        for row in rows
        if row["strategy"] == "mirrored" and row["devices"] == 1 and row["dataset"] == "synthetic"
    ]
    for row in bases:
        row["images_per_second"] = 300 + 0.1 * row["repeat"]
    again = [row | {"session": "B", "sentinel": 1} for row in bases]
    for name in ("scaling", "real_vs_synthetic"):
        assert not any(map(half_filled, drawn(name, [*rows, *again])))
    # Sentinels of another drift: corrected, and marked all the same.
    slower = [row | {"images_per_second": 0.8 * row["images_per_second"]} for row in again]
    differences = []
    for sentinels in ([], again, slower):
        (axes,) = drawn("real_vs_synthetic", [*rows, *sentinels])
        differences.append([text for text in texts(axes) if text.endswith("]")])
        assert bool(half_filled(axes)) == (sentinels is not again)
    assert differences[0] == differences[1] != differences[2]
    smallest = [row for row in rows if row["strategy"] == "single"]
    for row in smallest:
        row["images_per_second"] = row["batch_per_device"] + 1e-3 * row["repeat"]
    again = [
        row | {"session": "B", "sentinel": 1} for row in smallest if row["batch_per_device"] == 16
    ]
    slower = [row | {"images_per_second": 0.8 * row["images_per_second"]} for row in again]
    for sentinels, relative_time in ((again, 0.25), (slower, 0.2)):
        _, relative = drawn("time_per_batch", [*smallest, *sentinels])
        assert len(half_filled(relative)) == (sentinels is slower)
        ends = [line.get_ydata()[-1] for line in relative.lines if len(line.get_xdata()) == 2]
        assert any(abs(end - relative_time) < 1e-3 for end in ends)


def names_along_batches(rows):
    runs = series.started_runs(pd.DataFrame(rows, columns=table_columns.RUNS.names))
    panels = series.series_along("batch_per_device", runs, minimum=2)
    return {key[0]: [one.name for one in found] for key, found in panels.items()}


def test_how_long_runs_are_names_no_series_that_it_does_not_tell_from_another_of_its_panel():
    along = {"batch_per_device": [16, 32], "repeats": 1}
    rows = made_tables.study(model="lenet5", steps=300, **along)
    rows += made_tables.study(model="cnn12", steps=30, **along)
    assert names_along_batches(rows) == {"lenet5": [""], "cnn12": [""]}
    rows += made_tables.study(model="cnn12", steps=60, **along)
    assert names_along_batches(rows)["cnn12"] == ["30 steps", "60 steps"]


def unstable_in(rows, repeat=1):
    return [row | {"status": "unstable"} if row["repeat"] == repeat else row for row in rows]


def test_points_of_unstable_runs_have_a_star_which_is_explained(panels):
    along = {"batch_per_device": [16, 32], "strategy": "single"}
    well = made_tables.study(**along)
    assert styles.STAR not in texts(panels("batch_size", well)[0])
    (axes,) = panels("batch_size", unstable_in(well))
    assert texts(axes).count(styles.STAR) == 2
    assert " ".join(axes.figure.get_supxlabel().split()) == styles.STAR_NOTE  # wrapped
    rows = unstable_in(well) + made_tables.study(precision="bfloat16", model="vgg16", **along)
    axes = panels("batch_size", rows)[0]
    assert axes.figure.legends[0].get_title().get_text() == styles.STAR_NOTE


def test_the_figure_of_scaling_marks_points_of_unstable_runs(panels):
    rows = made_tables.study(devices=[1, 2, 4])
    rows = [row | {"status": "unstable"} if row["devices"] == 4 else row for row in rows]
    for axes in panels("scaling", rows):
        assert texts(axes).count(styles.STAR) == 1
        assert axes.figure.get_supxlabel() == styles.STAR_NOTE


def test_memory_of_unstable_runs_is_as_good_as_that_of_others(panels):
    rows = unstable_in(made_tables.study(batch_per_device=[16, 32], strategy="single"))
    assert not any(styles.STAR in texts(axes) for axes in panels("memory", rows))


def test_a_parameter_of_another_program_is_an_axis_and_the_others_name_series(tmp_path):
    texts = [f"micro_batch={m} tensor_parallel={t}" for m in (1, 2) for t in (1, 2, 4)]
    rows = [made_tables.run(trainer_parameters=text) for text in texts]
    parquet_files.write(tmp_path / "runs.parquet", rows, table_columns.RUNS)
    runs = series.started_runs(Tables(tmp_path, tmp_path).runs)
    (panel,) = series.series_along("parameters.tensor_parallel", runs, minimum=2).values()
    assert [(s.name, [x for x, _ in s.means("images_per_second")]) for s in panel] == [
        ("micro batch 1", [1, 2, 4]),
        ("micro batch 2", [1, 2, 4]),
    ]
