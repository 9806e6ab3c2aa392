"""All figures: drawn from every edge case, the same bytes again, and numbers of the tables."""

import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dlbench.analysis import estimates
from dlbench.common import plugins
from dlbench.drawing import styles
from dlbench.drawing.figures import step_times, utilisation
from support.results import made_tables
from support.results.drawn_figures import has, texts

NAMES = plugins.names("figures")
IN_ALL_FORMATS = "scaling"
# The cases that differ most.
LEVELS = dict.fromkeys(("nothing", "one run for epochs"), pytest.mark.quick)
MORE = ("one run", "all failed", "some failed", "huge numbers", "40 series")
LEVELS |= dict.fromkeys(MORE, pytest.mark.ci)
LEVELS |= dict.fromkeys(("sessions", "missing base", "published"), pytest.mark.slow)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=level) for case, level in LEVELS.items()]
)
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_from_every_edge_case_without_a_warning(name, case, drawn):
    """And of nothing it says so; a logarithmic axis says that it is one, and no other does."""
    axes = drawn(name, case)
    assert not plt.get_fignums()
    if case == "nothing":
        assert texts(axes[0]) and not axes[0].get_title(loc="left")
    for axis in [axis for one in axes for axis in (one.xaxis, one.yaxis)]:
        label = axis.get_label_text().strip()
        assert not label or label.endswith(" (log)") == (axis.get_scale() == "log"), label


@pytest.mark.parametrize(
    "name",
    [
        IN_ALL_FORMATS,
        *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES if n != IN_ALL_FORMATS),
    ],
)
def test_the_same_tables_give_the_same_bytes(name, made, tmp_path, monkeypatch):
    """An SVG has all that is drawn; that other formats add nothing, one figure shows for all."""
    if name != IN_ALL_FORMATS:
        monkeypatch.setattr(styles, "FORMATS", ("svg",))
    monkeypatch.setitem(styles.STYLE, "savefig.dpi", 40)
    case = "published" if name == IN_ALL_FORMATS else "some failed"
    found = []
    for folder in ("a", "b"):
        plugins.load("figures", name).draw(made(case), tmp_path / folder / name)
        files = [tmp_path / folder / f"{name}.{suffix}" for suffix in styles.FORMATS]
        found.append([file.read_bytes() for file in files])
    assert found[0] == found[1]
    assert ElementTree.fromstring(found[0][0]).tag.endswith("svg")


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
    assert [text.rstrip() for text in texts(first) if text.startswith("throughput")] == [
        "throughput over its condition's mean"
    ]
    assert has(first, 100 * (one["images_per_second"] / np.exp(np.log(same).mean()) - 1))
    pairs = shown.drift[shown.drift["devices_per_node"] == 1]
    ratio = pairs[pairs["earlier_session"] == min(runs["session"])].iloc[0]["ratio"]
    (label,) = [text for text in texts(first) if text.endswith(", slower ")]
    assert label.startswith(f"\u2212{100 * (1 - ratio):.1f} % [")
    assert max(path.vertices[:, 1].max() for path in others.collections[0].get_paths()) > 0
    assert next(text for text in texts(first) if text.endswith("later")).endswith("3 h later")
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
        and any(w.split(" \u00b7 ")[0] == titles[mode] for w in texts(axis))
    )
    for _, repeats in runs.groupby(["batch_per_device", "precision"], observed=True):
        estimate = estimates.mean(repeats["images_per_second"])
        assert has(axes, estimate.value)
        assert has(axes, estimate.low) and has(axes, estimate.high)


def test_time_per_image_is_the_inverse_of_the_throughput(drawn, made):
    runs = made("one device count").runs
    runs = runs[runs["epochs"].isna()]
    times, relative = drawn("time_per_batch", "one device count")
    small, large = (runs[runs["batch_per_device"] == n]["images_per_second"] for n in (16, 64))
    assert has(times, 4 / estimates.mean(small).value)
    assert has(times, 4 / estimates.mean(large).value)
    assert has(relative, estimates.ratio(small, large).value)


def test_accuracy_and_training_time_are_those_of_the_runs_table(drawn, made):
    runs = made("one device count").runs
    runs = runs[runs["epochs"].notna()]
    (axes,) = drawn("accuracy", "one device count")
    assert all(has(axes, value) for value in runs["top1"])
    (axes,) = drawn("training_time", "one device count")
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
    assert "no energy was recorded" in texts(axes)[0]


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
    assert any(word.startswith(percent) for word in texts(axes))
    assert "no synthetic items of 32x32x1" in texts(axes)


def test_step_times_show_the_medians_of_the_table_and_every_stall(drawn, made):
    kept, stalls = made("one device count"), 0
    (axes,) = drawn("step_times", "one device count")
    runs = kept.runs[kept.runs["epochs"].notna()]
    for _, run in runs.iterrows():
        assert has(axes, run["step_time_median_s"], along="x")
        assert has(axes, run["step_time_p95_s"], along="x")
        steps = kept.steps(run["run_id"])
        long = steps[~steps["warm_up"]]["step_time_s"]
        for stall in long[long > 2 * run["step_time_median_s"]]:
            assert has(axes, stall, along="x")
            stalls += 1
    assert stalls


def test_steps_are_those_of_the_slowest_rank_and_copies_stand_alone():
    steps = pd.DataFrame(
        {
            "rank": [0, 0, 0, 1, 1, 1],
            "step": [1, 2, 3] * 2,
            "step_time_s": [9.0, 2, 2, 8, 1, 4],
            "warm_up": [True, False, False] * 2,
            "window_steps": [1] * 6,
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


def test_utilisation_is_drawn_over_the_whole_run_in_minutes_where_it_has_many(draw):
    rows = made_tables.study(repeats=1, duration_s=600.0)
    (axes,) = draw("utilisation", rows, steps_each=100).axes
    assert axes.get_xlabel() == "time since the start of the run, min"
    assert axes.get_xlim() == (0, 10) and max(axes.lines[-1].get_xdata()) == 10


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


def test_coverage_says_each_reason_to_its_end_and_statuses_with_labels(panels):
    why = "trained by the medium of the study, " + "which goes on and on " * 12 + "to its end"
    rows = [row | {"message": why} for row in made_tables.study(status="failed")]
    rows += made_tables.study(model="vgg16", steps=7, status="timeout")
    (axes,) = panels("coverage", rows)
    lines = axes.figure.legends[0].get_title().get_text().split("\n")
    assert " ".join(map(str.strip, lines)).startswith(f"3 failed: {why} ")
    assert max(map(len, lines)) < 140
    assert any("3 over the time limit" in label for label in texts(axes))


def test_coverage_has_every_combination_with_its_worst_status(drawn, made):
    (axes,) = drawn("coverage", "some failed")
    cells = {line.get_label(): len(line.get_xdata()) for line in axes.lines}
    runs = made("some failed").runs
    combinations = runs.drop_duplicates(
        ["model", "dataset", "mode", "strategy", "devices", "batch_per_device", "precision",
         "runtime"]
    )  # fmt: skip
    assert sum(cells.values()) == len(combinations) + 1
    assert cells["excluded"] == 1
    assert cells["oom"] == 4
    assert texts(axes).count("2/3") == 2
    counts = runs["status"].value_counts()
    assert f"{counts['ok']} ok" in " ".join(texts(axes))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567, "1\u2009234\u2009567"), (4e11, "4\u00b710\u00b9\u00b9"),
     (5e-7, "5\u00b710\u207b\u2077"), (0.25, "0.25"), (12345678, "1.23\u00b710\u2077")],
)  # fmt: skip
def test_numbers_are_written_so_that_they_can_be_read(value, text):
    assert styles.thousands(value) == text
