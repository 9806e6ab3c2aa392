"""laws: parameters come back from throughputs that follow the law."""

import math

import numpy as np
import pytest

from dlbench.analysis import laws

DEVICES = np.repeat([1, 2, 4, 8, 16, 32], 3)


def noisy(rates, seed, scatter=0.02):
    return rates * np.exp(np.random.default_rng(seed).normal(0, scatter, len(rates)))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.5, 1.0])
def test_amdahls_share_comes_back(share):
    found = laws.amdahl(DEVICES, 40 * DEVICES / (1 + share * (DEVICES - 1)))
    assert found.value == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.05, 0.001), (0.2, 0.0), (0.0, 0.01)])
def test_the_universal_laws_two_come_back(alpha, beta):
    loss = alpha * (DEVICES - 1) + beta * DEVICES * (DEVICES - 1)
    found = laws.usl(DEVICES, 3000 * DEVICES / (1 + loss))
    assert [e.value for e in found] == pytest.approx([alpha, beta], abs=1e-6)


def test_a_speedup_above_the_devices_is_a_negative_share():
    found = laws.amdahl(DEVICES, 40 * DEVICES**1.02)
    assert -1 / 31 < found.value < 0


def test_the_interval_covers_the_share_about_as_often_as_it_says():
    rates = 40 * DEVICES / (1 + 0.03 * (DEVICES - 1))
    found = [laws.amdahl(DEVICES, noisy(rates, seed)) for seed in range(300)]
    assert 0.91 <= np.mean([e.low <= 0.03 <= e.high for e in found]) <= 0.98


def test_the_unit_of_throughput_does_not_matter():
    rates = noisy(40 * DEVICES / (1 + 0.03 * (DEVICES - 1)), 7)
    one, other = laws.amdahl(DEVICES, rates), laws.amdahl(DEVICES, 1e-6 * rates)
    assert (one.value, one.low) == pytest.approx((other.value, other.low), rel=1e-4)


def test_where_the_best_is_the_least_that_is_allowed_there_is_no_interval():
    found = laws.amdahl(DEVICES, 40.0 * DEVICES**2)
    assert math.isnan(found.low) and math.isnan(found.high)


def test_parameters_stop_where_throughput_would_have_no_bound():
    # Of 32 devices: 1 + alpha 31 + beta 32 x 31 is still 0.1.
    found = laws.usl(DEVICES, 40.0 * DEVICES**3)
    assert [e.value for e in found] == pytest.approx([-0.45 / 31, -0.45 / (32 * 31)], rel=1e-9)
    assert all(math.isnan(end) for e in found for end in (e.low, e.high))


def test_as_many_runs_as_parameters_give_no_fit():
    assert laws.usl([1, 2, 4], [1.0, 2.0, 4.0]) is None


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ([1, 2, 4, 8, 16], ""),
        ([1, 1, 2, 2, 4], "needs 5 numbers of devices, there are 3"),
        ([2, 2], "needs 5 numbers of devices, there is 1"),
    ],
)
def test_why_there_is_no_fit_is_said(devices, why):
    assert laws.why_no_fit(devices) == why
