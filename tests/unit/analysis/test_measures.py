"""measures: metrics that programs name, beside the numbers of the runs table."""

import pytest

from dlbench import Error
from dlbench.analysis import measures
from dlbench.tables.metrics import Metric


def named(run_id, value, name="busbw", unit="GB/s", better="higher"):
    return {"run_id": run_id, "name": name, "value": value, "unit": unit, "better": better}


def run(run_id, status="ok"):
    return {"run_id": run_id, "status": status}


def test_rows_have_a_key_for_each_of_their_metrics():
    table = [named("a", 230.0), named("a", 12.0, "latency"), named("b", 220.0)]
    rows = measures.attached([run("a"), run("b"), run("c")], table)
    assert rows[0] == run("a") | {"metrics.busbw": 230.0, "metrics.latency": 12.0}
    assert rows[1:] == [run("b") | {"metrics.busbw": 220.0}, run("c")]


def test_a_metric_has_the_unit_and_direction_of_its_runs():
    found = measures.named([named("a", 12.0, "latency", "us", "lower"), named("a", 1.0)])
    assert list(found.metrics) == ["busbw", "latency"] and found.unlike == {}
    latency = found.metrics["latency"]
    assert (latency.unit, latency.column) == ("us", "metrics.latency")
    assert [latency.verdict(ratio) for ratio in (0.9, 1.1)] == ["better", "worse"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"unit": "MB/s"}, "unit is 'GB/s' in a and 'MB/s' in b"),
        ({"better": ""}, "better is 'higher' in a and '' in b"),
    ],
)
def test_a_metric_in_which_runs_do_not_agree_is_named_and_left_out(other, why):
    found = measures.named([named("a", 1.0), named("b", 2.0, **other)])
    assert (found.metrics, found.unlike) == ({}, {"busbw": why})


def test_without_a_better_direction_values_only_differ():
    metric = Metric.named("skew", "", "")
    assert {metric.verdict(0.9), metric.verdict(1.1)} == {"differs"} == set(metric.verdicts)
    with pytest.raises(Error, match="skew: whether more or less is better is not known"):
        metric.check_direction()
    Metric.named("busbw", "GB/s", "higher").check_direction()


def test_means_are_geometric_unless_a_completed_run_has_no_logarithm():
    metric = Metric.named("skew", "", "")
    rows = [run("a") | {"metrics.skew": 1.0}, run("b", "failed") | {"metrics.skew": -1.0}]
    # The square root of 1 x 4; the mean of 1 and 4.
    assert measures.mean_of(rows, metric)([1.0, 4.0]).value == pytest.approx(2.0)
    rows.append(run("c") | {"metrics.skew": 0.0})
    assert measures.not_positive(rows, metric)["run_id"] == "c"
    found = measures.mean_of(rows, metric)([1.0, 4.0, -2.0])
    # Mean 1, sample variance (0 + 9 + 9) / 2 = 9, error sqrt(9 / 3), t of 2 degrees 4.302653.
    assert found.value == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((1 - 7.452414, 1 + 7.452414), abs=1e-5)
