"""All figures: drawn from every edge case, the same bytes again, and numbers of the tables."""

import warnings
import xml.etree.ElementTree as ElementTree

import made_tables
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dlbench.analysis import estimates
from dlbench.common import plugins
from dlbench.figures import step_times, utilisation
from dlbench.figures.drawing import line_charts, series, styles
from dlbench.tables import table_columns

NAMES = plugins.names("figures")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of a case, written once."""
    written = {}

    def read(case):
        if case not in written:
            folder = tmp_path_factory.mktemp("tables")
            written[case] = made_tables.write(folder, made_tables.CASES[case]())
        return written[case]

    return read


@pytest.fixture
def drawn(made, tmp_path, monkeypatch):
    """A function that draws a figure of a case and returns its axes."""
    kept = []

    def save(figure, stem):
        figure.draw_without_rendering()
        kept.append(figure)

    def draw(name, case):
        monkeypatch.setattr(styles, "save", save)
        plugins.load("figures", name).draw(made(case), tmp_path / name)
        return kept[-1].axes

    return draw


def lines(axes):
    """Every (x, y) of every line, rounded."""
    return {
        (float(f"{x:.9g}"), float(f"{y:.9g}"))
        for line in axes.lines
        for x, y in zip(*map(np.atleast_1d, line.get_data()), strict=True)
        if np.isreal(x)
    }


def has(axes, value, along="y"):
    """Whether a number was drawn, as a coordinate of some line."""
    return any(np.isclose(p[along == "y"], value, rtol=1e-8, atol=0) for p in lines(axes))


def words(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("case", made_tables.CASES)
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_from_every_edge_case_without_a_warning(
    name, case, made, tmp_path, monkeypatch
):
    monkeypatch.setattr(styles, "FORMATS", ("png",))
    monkeypatch.setitem(styles.STYLE, "savefig.dpi", 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins.load("figures", name).draw(made(case), tmp_path / name)
    assert (tmp_path / f"{name}.png").stat().st_size > 500
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tables_give_the_same_bytes(name, made, tmp_path):
    found = []
    for folder in ("a", "b"):
        plugins.load("figures", name).draw(made("some failed"), tmp_path / folder / name)
        files = [tmp_path / folder / f"{name}.{suffix}" for suffix in styles.FORMATS]
        found.append([file.read_bytes() for file in files])
    assert found[0] == found[1]
    assert ElementTree.fromstring(found[0][0]).tag.endswith("svg")


@pytest.mark.parametrize("name", NAMES)
def test_a_logarithmic_axis_says_so(name, made, tmp_path, monkeypatch):
    kept, save = [], styles.save
    monkeypatch.setattr(styles, "FORMATS", ())
    monkeypatch.setattr(styles, "save", lambda *drawn: kept.append(drawn[0]) or save(*drawn))
    plugins.load("figures", name).draw(made("some failed"), tmp_path / name)
    for axis in [axis for axes in kept[0].axes for axis in (axes.xaxis, axes.yaxis)]:
        label = axis.get_label_text().strip()
        assert not label or label.endswith(" (log)") == (axis.get_scale() == "log"), label


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_how_it_was_computed(name):
    constants = plugins.constants("figures", name)
    assert constants["CATEGORY"]
    assert len(constants["CAPTION"].split()) > 30


def test_drift_is_what_sentinels_are_over_their_condition_as_its_table_has_it(drawn, made):
    shown, runs = made("sessions"), made("sessions").runs
    repeated = shown.sentinels
    one = repeated[repeated["devices"] == 1].iloc[0]
    base = runs[
        (runs["devices"] == 1)
        & (runs["batch_per_device"] == one["batch_per_device"])
        & (runs["learning_rate"] == one["learning_rate"])
    ]
    same = pd.concat([base, repeated[repeated["devices"] == 1]])["images_per_second"]
    assert len(same) == 9
    first, second, others = drawn("drift", "sessions")
    assert has(first, 100 * (one["images_per_second"] / np.exp(np.log(same).mean()) - 1))
    pairs = shown.drift[shown.drift["devices_per_node"] == 1]
    ratio = pairs[pairs["earlier_session"] == min(runs["session"])].iloc[0]["ratio"]
    (said,) = [text for text in words(first) if text.endswith(", slower ")]
    assert said.startswith(f"\u2212{100 * (1 - ratio):.1f} % [")
    assert max(path.vertices[:, 1].max() for path in others.collections[0].get_paths()) > 0
    assert next(text for text in words(first) if text.endswith("later")).endswith("3 h later")
    assert has(second, 0.0)


@pytest.mark.parametrize("mode", ["forward", "forward_backward"])
def test_throughput_by_batch_size_is_that_of_the_runs_table(mode, drawn, made):
    runs = made("some failed").runs
    runs = runs[(runs["mode"] == mode) & (runs["model"] == "alexnet")]
    titles = {"forward": "forward", "forward_backward": "forward and backward"}
    axes = next(
        axis
        for axis in drawn("batch_size", "some failed")
        if axis.get_title(loc="left").startswith("alexnet")
        and any(w.split(" \u00b7 ")[0] == titles[mode] for w in words(axis))
    )
    for _, repeats in runs.groupby(["batch_per_device", "precision"], observed=True):
        estimate = estimates.mean(repeats["images_per_second"])
        assert has(axes, estimate.value)
        assert has(axes, estimate.low) and has(axes, estimate.high)


def test_time_per_image_is_the_inverse_of_the_throughput(drawn, made):
    runs = made("12 series").runs
    runs = runs[runs["epochs"].isna()]
    times, relative = drawn("time_per_batch", "12 series")
    some = runs[(runs["devices"] == 4) & ~runs["xla"] & (runs["precision"] == "float32")]
    base = some[some["batch_per_device"] == 32]["images_per_second"]
    for batch, repeats in some.groupby("batch_per_device"):
        rate = estimates.mean(repeats["images_per_second"]).value
        assert has(times, 4 / rate)
        if batch != 32:
            assert has(relative, estimates.ratio(base, repeats["images_per_second"]).value)


def test_accuracy_and_training_time_are_those_of_the_runs_table(drawn, made):
    runs = made("12 series").runs
    runs = runs[runs["epochs"].notna()]
    (axes,) = drawn("accuracy", "12 series")
    assert all(has(axes, value) for value in runs["top1"])
    (axes,) = drawn("training_time", "12 series")
    for _, repeats in runs.groupby(["optimizer", "learning_rate", "devices"], observed=True):
        assert has(axes, estimates.mean(repeats["duration_s"]).value)


def test_energy_is_that_of_the_runs_table(drawn, made):
    runs = made("some failed").runs
    (axes,) = drawn("energy", "some failed")
    some = runs[(runs["dataset"] == "imagenet") & (runs["devices"] == 4)]
    for _, repeats in some.groupby("model", observed=True):
        assert has(axes, estimates.mean(repeats["energy_per_image_j"]).value, along="x")


def test_energy_that_was_not_counted_is_said(drawn):
    (axes,) = drawn("energy", "one repeat")
    assert "no energy was recorded" in words(axes)[0]


def test_real_and_synthetic_items_are_drawn_in_pairs_with_their_ratio(drawn, made):
    runs = made("some failed").runs
    (axes,) = drawn("real_vs_synthetic", "some failed")
    sides = [
        runs[
            (runs["model"] == "alexnet")
            & (runs["dataset"] == dataset)
            & (runs["mode"] == "train")
            & (runs["devices"] == 4)
        ]["images_per_second"]
        for dataset in ("imagenet", "synthetic")
    ]
    assert all(has(axes, estimates.mean(side).value, along="x") for side in sides)
    percent = f"{100 * (estimates.ratio(*sides).value - 1):+.1f} %".replace("-", "\u2212")
    assert any(word.startswith(percent) for word in words(axes))
    assert "no synthetic items of 32x32x1" in words(axes)


def test_step_times_show_the_medians_of_the_table_and_every_stall(drawn, made):
    kept = made("12 series")
    (axes,) = drawn("step_times", "12 series")
    runs = kept.runs[kept.runs["epochs"].notna()]
    for _, run in runs.iterrows():
        assert has(axes, run["step_time_median_s"], along="x")
        assert has(axes, run["step_time_p95_s"], along="x")
        steps = kept.steps(run["run_id"])
        long = steps[~steps["warm_up"]]["step_time_s"]
        for stall in long[long > 2 * run["step_time_median_s"]]:
            assert has(axes, stall, along="x")


def test_steps_are_those_of_the_slowest_rank_and_copies_stand_alone():
    steps = pd.DataFrame(
        {
            "rank": [0, 0, 0, 1, 1, 1],
            "step": [1, 2, 3] * 2,
            "step_time_s": [9.0, 2, 2, 8, 1, 4],
            "warm_up": [True, False, False] * 2,
        }
    )
    assert step_times.measured(steps).tolist() == [1, 4]
    assert step_times.measured(steps, copies=2).tolist() == [2, 2, 1, 4]
    assert step_times.measured(steps[:1]).tolist() == []


def test_utilisation_is_the_mean_over_gpus_and_the_least_of_them():
    rows = [(0, "0", 80.0), (0, "1", 60.0), (1, "0", 100.0), (1, "1", 50.0)]
    samples = pd.DataFrame(rows, columns=["t_s", "gpu", "utilisation_percent"])
    samples = samples.assign(rank=0, cpu_percent=None)
    found = utilisation.utilisation(samples, None)
    assert found["mean"].tolist() == [70, 75]
    assert found["least"].tolist() == [60, 50]


def test_utilisation_of_cpu_devices_is_of_the_cores_of_the_process():
    samples = pd.DataFrame({"t_s": [0.0, 1, 0, 1], "rank": [0, 0, 1, 1]})
    samples = samples.assign(cpu_percent=[200.0, 100, 100, 100], utilisation_percent=np.nan)
    run = {"threads_per_device": 2, "devices": 2, "copies_per_node": 1}
    assert utilisation.utilisation(samples, run)["mean"].tolist() == [75, 50]


def test_losses_are_those_of_the_logs(drawn, made):
    kept = made("one run for epochs")
    training, held_out = np.reshape(drawn("loss", "one run for epochs"), (2, 3))
    steps, evals = kept.steps(kept.runs["run_id"].iloc[0]), kept.evals
    raw = training[0].lines[0]
    assert raw.get_xdata() == pytest.approx(steps["step"])
    assert raw.get_ydata() == pytest.approx(steps["loss"])
    by_epoch = held_out[1].lines[0]
    assert by_epoch.get_xdata() == pytest.approx(evals["epoch"])
    assert by_epoch.get_ydata() == pytest.approx(evals["loss"])
    assert [axis.get_xlabel() for axis in held_out] == ["steps", "epochs", "wall-clock time, s"]


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


@pytest.mark.parametrize("case", ["some failed", "12 series", "published", "missing base"])
def test_scaling_is_that_of_the_table_of_speedups(case, drawn, made):
    speedups = made(case).speedups
    speedups = speedups[(speedups["mode"] == "train") & speedups["epochs"].isna()]
    speedups = speedups[speedups["scaling"].notna()]
    groups = speedups.groupby(["scaling", "model", "dataset"], observed=True)
    rows = np.reshape(drawn("scaling", case), (-1, 2))
    found = [[scaling_numbers(axes) for axes in row] for row in rows]
    names = ("images_per_second", "efficiency")
    table = [[speedups_numbers(own, name) for name in names] for _, own in groups]
    assert sorted(found) == sorted(table)


def test_scaling_has_crosses_where_runs_failed(drawn):
    rows = np.reshape(drawn("scaling", "some failed"), (-1, 2))
    for axes in rows[-1]:
        assert [round(x) for x in crosses(axes)] == [16]
        assert "time\nlimit" in words(axes)
    assert not any(crosses(axes) for axes in rows[:-1].flat)
    for axes in np.reshape(drawn("scaling", "all failed"), (-1, 2))[:, 0]:
        assert {1, 4} <= set(crosses(axes))
        assert "no run ended well" in " ".join(words(axes))
        assert "mirrored" in words(axes)


def crosses(axes):
    return [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]


def test_a_base_of_another_strategy_stays_said_where_runs_failed(tmp_path, monkeypatch):
    rows = made_tables.study(devices=[1, 2, 4], strategy=["mirrored", "horovod"])
    rows = made_tables.failing(rows, lambda r: r["devices"] == 1 and r["strategy"] == "horovod")
    kept = []
    monkeypatch.setattr(styles, "save", lambda figure, stem: kept.append(figure))
    plugins.load("figures", "scaling").draw(made_tables.write(tmp_path, rows), tmp_path / "s")
    throughput, efficiency = kept[0].axes
    assert crosses(throughput) == [1]
    assert "horovod: point and base differ in strategy" in words(efficiency)


def test_published_points_of_scaling_are_hollow(drawn):
    for axes in drawn("scaling", "published"):
        faces = [line.get_markerfacecolor() for line in axes.lines if line.get_label()[0] != "_"]
        assert 0 < faces.count("white") < len(faces)


@pytest.mark.parametrize("case", ["nothing", "all skipped", "one device count"])
def test_scaling_without_a_series_is_a_line_of_words(case, drawn):
    (axes,) = drawn("scaling", case)
    assert words(axes) == ["no series on more than one device"]
    assert axes.figure.get_figheight() < 1


def test_laws_are_those_of_the_table_of_speedups(drawn, made):
    speedups = made("huge numbers").speedups
    axes = drawn("usl", "huge numbers")
    fitted = speedups[speedups["usl_alpha"].notna()]
    assert len(axes) == fitted["batch_per_device"].nunique() == 2
    for axis, (_, own) in zip(axes, fitted.groupby("batch_per_device"), strict=True):
        assert all(has(axis, rate) for rate in own["images_per_second"])
        assert any(f"alpha {own['usl_alpha'].iloc[0]:.2g} [" in word for word in words(axis))
        beyond = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert all(min(line.get_xdata()) >= 16 for line in beyond)


def test_what_has_no_fit_says_why(drawn):
    (axes,) = drawn("usl", "missing base")
    assert "needs 5 numbers of devices, there are 3" in words(axes)[0]


def test_coverage_has_every_combination_with_its_worst_status(drawn, made):
    (axes,) = drawn("coverage", "some failed")
    cells = {line.get_label(): len(line.get_xdata()) for line in axes.lines}
    runs = made("some failed").runs
    combinations = runs.drop_duplicates(
        [
            "model",
            "dataset",
            "mode",
            "strategy",
            "devices",
            "batch_per_device",
            "precision",
            "runtime",
        ]
    )
    assert sum(cells.values()) == len(combinations) + 1
    assert cells["excluded"] == 1
    assert cells["oom"] == 4
    assert words(axes).count("2/3") == 2
    counts = runs["status"].value_counts()
    assert f"{counts['ok']} ok" in " ".join(words(axes))


def test_failures_are_crosses_with_their_number_and_reason(drawn):
    panels = [a for a in drawn("batch_size", "some failed") if "vgg16" in a.get_title(loc="left")]
    for axes in panels:
        assert any(line.get_marker() == "x" for line in axes.lines)
        assert "4 of 6 runs\nout of\nmemory" in words(axes)


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
    said = {word for axes in panels for word in words(axes)}
    ratios = table[table["metric"] == "images_per_second"]["own_over_published"]
    assert {f"\u00d7{ratio:.2f}" for ratio in ratios} <= said


def test_no_published_number_is_written_over_its_points(drawn):
    for axes in drawn("published", "published"):
        axes.figure.draw_without_rendering()
        right = axes.get_window_extent().x1
        beside = [text for text in axes.texts if "(=" in text.get_text()]
        assert all(text.get_window_extent().x0 > right for text in beside)


def test_without_published_numbers_words_say_so(drawn):
    (axes,) = drawn("published", "one repeat")
    assert words(axes) == ["no published numbers to draw: see `references` in the config"]


def test_what_is_not_drawn_is_counted_in_words(drawn):
    axes = drawn("time_per_batch", "40 series")[0]
    title = axes.figure.legends[0].get_title().get_text()
    assert title == "10 of 50 series not drawn: see runs.parquet"


def test_a_series_has_one_colour_in_all_panels(made):
    runs = series.begun_runs(made("some failed").runs)
    found = series.series_along("batch_per_device", runs, fewest=2)
    assert len(found) == 2
    for one, other in zip(*found.values(), strict=True):
        assert line_charts.marks(one) == line_charts.marks(other)


def test_what_a_publication_does_not_state_names_no_series():
    own = made_tables.study(devices=[1, 2], repeats=1)
    paper = [
        dict.fromkeys(table_columns.RUNS.names)
        | {name: row[name] for name in ("run_id", "model", "dataset", "mode", "devices", "status")}
        | {"timing_source": "published", "site": "paper", "images_per_second": 1.0}
        for row in own
    ]
    runs = series.begun_runs(pd.DataFrame(own + paper, columns=table_columns.RUNS.names))
    names = [s.name for s in next(iter(series.series_along("devices", runs).values()))]
    assert names == ["here", "paper, published"]


def test_a_run_that_failed_before_its_device_was_known_belongs_to_its_series():
    rows = [made_tables.run(batch_per_device=b, status=s) for b, s in ((16, "ok"), (32, "oom"))]
    rows[1]["device_model"] = None
    runs = series.begun_runs(pd.DataFrame(rows, columns=table_columns.RUNS.names))
    (found,) = next(iter(series.series_along("batch_per_device", runs).values()))
    assert [x for x, *_ in found.failures()] == [32]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1\u2009234\u2009567"),
        (4e11, "4\u00b710\u00b9\u00b9"),
        (5e-7, "5\u00b710\u207b\u2077"),
        (0.25, "0.25"),
        (12345678, "1.23\u00b710\u2077"),
    ],
)
def test_numbers_are_written_so_that_they_can_be_read(value, text):
    assert styles.thousands(value) == text


def half_filled(axes):
    """x of the markers of what was measured apart."""
    lines = [line for line in axes.lines if line.get_fillstyle() == "bottom"]
    return [float(np.atleast_1d(line.get_xdata())[0]) for line in lines]


def test_what_was_measured_apart_has_half_filled_markers(tmp_path, monkeypatch):
    rows = made_tables.study(devices=[1, 2, 4]) + made_tables.study(dataset="imagenet")
    rows += made_tables.study(strategy="single", batch_per_device=[16, 64])
    for row in rows:
        later = row["devices"] == 4 or row["dataset"] == "imagenet" or row["strategy"] == "single"
        row["session"] = "B" if later and row["batch_per_device"] == 64 else "A"
    kept = {}
    monkeypatch.setattr(styles, "save", lambda figure, stem: kept.update({stem.name: figure}))

    def drawn(name, rows=rows):
        plugins.load("figures", name).draw(made_tables.write(tmp_path, rows), tmp_path / name)
        return kept[name].axes

    throughput, efficiency = drawn("scaling")
    for axes in (throughput, efficiency):
        assert list(map(round, half_filled(axes))) == [4]
    assert any("half-filled: measured apart" in text for text in words(efficiency))
    times, relative = drawn("time_per_batch")
    assert (half_filled(times), list(map(round, half_filled(relative)))) == ([], [64])
    (axes,) = drawn("real_vs_synthetic")
    assert len(half_filled(axes)) == 2 and "measured apart" in words(axes)
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
        differences.append([text for text in words(axes) if text.endswith("]")])
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
