"""The figure of metrics: a panel each, with a mean for each condition."""

import pytest

from dlbench.analysis import estimates
from support.results import made_metrics, made_tables
from support.results.drawn_figures import has


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


def test_each_metric_has_a_panel_with_the_mean_of_each_condition(panels):
    made = made_metrics.named_metrics()
    bandwidth, latency, skew = panels("metrics", made)
    titles = [axes.get_title("left") for axes in (bandwidth, latency, skew)]
    assert titles == ["busbw_gb_per_s", "latency_us", "skew_percent"]
    assert [axes.get_xlabel() for axes in (bandwidth, latency, skew)] == ["GB/s", "us", "%"]
    assert "higher is better, geometric mean" in texts(bandwidth)
    assert "lower is better, geometric mean" in texts(latency)
    assert "arithmetic mean, 95 % interval, (runs)" in texts(skew) and "better" not in texts(skew)
    for strategy, devices in (("ddp", 2), ("ddp", 8), ("fsdp", 4)):
        values = [
            metric["value"]
            for row in made
            if (row["strategy"], row["devices"]) == (strategy, devices)
            for metric in row["metrics"]
            if metric["name"] == "latency_us"
        ]
        assert len(values) == 4 and has(latency, estimates.mean(values).value, along="x")


@pytest.mark.parametrize(
    ("units", "message"),
    [((), "the programs of the runs name no metrics"), (("GB/s", "MB/s"), "unit is 'GB/s' in")],
)
def test_without_a_metric_in_which_runs_agree_the_figure_says_so(draw, units, message):
    rows = made_tables.study(devices=[1, 2], model="resnet50", repeats=1)
    for row, unit in zip(rows, units, strict=False):
        metric = {"name": "busbw", "value": 1.0, "unit": unit, "better": ""}
        row["metrics"] = [{"run_id": row["run_id"], **metric}]
    assert message in texts(draw("metrics", rows).axes[0])


def test_conditions_of_several_models_have_their_names(panels):
    rows = made_metrics.with_metrics(
        made_tables.study(devices=[1], model=["resnet50", "vgg16"], repeats=1),
        busbw=(lambda row: 10.0, "GB/s", "higher"),
    )
    (axes,) = panels("metrics", rows)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 2 and any("vgg16" in name for name in names)
