"""estimates: intervals that cover what they promise."""

import math

import numpy as np
import pytest
from scipy import stats

from dlbench.analysis import estimates


def test_the_mean_is_geometric_with_students_interval_on_logs():
    values = [100.0, 110.0, 121.0]
    found = estimates.mean(values)
    logs = np.log(values)
    half = stats.t.ppf(0.975, 2) * np.std(logs, ddof=1) / math.sqrt(3)
    assert found.value == pytest.approx(110)
    assert found.low == pytest.approx(110 * math.exp(-half))
    assert found.high == pytest.approx(110 * math.exp(half))
    assert found.runs == 3


def test_a_ratio_has_welchs_interval_on_logs():
    above, below = [200.0, 210.0, 190.0], [100.0, 101.0]
    found = estimates.ratio(above, below)
    a, b = np.log(above), np.log(below)
    sa, sb = a.var(ddof=1) / 3, b.var(ddof=1) / 2
    freedom = (sa + sb) ** 2 / (sa**2 / 2 + sb**2 / 1)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sa + sb)
    centre = a.mean() - b.mean()
    assert found.value == pytest.approx(math.exp(centre))
    assert found.low == pytest.approx(math.exp(centre - half))
    assert found.high == pytest.approx(math.exp(centre + half))


def test_one_run_has_no_interval():
    assert math.isnan(estimates.mean([5.0]).low)
    assert math.isnan(estimates.ratio([5.0], [2.0, 2.1]).high)
    assert estimates.ratio([5.0], [2.0]).value == 2.5


def test_runs_without_scatter_have_an_interval_of_no_width():
    assert estimates.mean([5.0, 5.0]).low == pytest.approx(5.0)
    found = estimates.ratio([4.0, 4.0], [2.0, 2.0])
    assert (found.low, found.value, found.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [float("nan")]])
def test_what_is_no_throughput_is_refused(values):
    with pytest.raises(ValueError, match="expected positive values"):
        estimates.mean(values)
