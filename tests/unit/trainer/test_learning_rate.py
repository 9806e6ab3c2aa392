"""learning_rate: what must hold of it, whatever the numbers."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.trainer import learning_rate

SCALINGS = ("none", "linear", "sqrt")
batches = st.integers(1, 1 << 16)
rates = st.floats(1e-6, 100)


def spec(rate=0.1, scaling="linear", batch=256, warmup=0):
    return SimpleNamespace(
        learning_rate=rate,
        learning_rate_scaling=scaling,
        learning_rate_batch=batch,
        learning_rate_warmup_steps=warmup,
    )


specs = st.builds(spec, rates, st.sampled_from(SCALINGS), batches, st.integers(1, 1000))


@given(rates, st.sampled_from(SCALINGS), batches, batches, st.integers(1, 10**6))
def test_without_a_warm_up_it_is_the_same_in_all_steps(rate, scaling, batch, global_batch, step):
    values = spec(rate, scaling, batch)
    assert learning_rate.in_step(values, global_batch, step) == learning_rate.scaled(
        values, global_batch
    )


@given(rates, st.sampled_from(SCALINGS), batches)
def test_the_batch_for_which_it_is_meant_changes_nothing(rate, scaling, batch):
    assert learning_rate.scaled(spec(rate, scaling, batch), batch) == rate


@given(rates, batches, st.integers(1, 256))
def test_it_grows_with_the_batch_or_with_its_root(rate, batch, factor):
    expected = {"none": 1, "linear": factor, "sqrt": factor**0.5}
    for scaling, times in expected.items():
        scaled = learning_rate.scaled(spec(rate, scaling, batch), batch * factor)
        assert scaled == pytest.approx(rate * times, rel=1e-12)


@given(specs, batches)
def test_the_warm_up_ends_without_a_jump(values, global_batch):
    steps = values.learning_rate_warmup_steps
    last, end, after = (
        learning_rate.in_step(values, global_batch, step) for step in (steps - 1, steps, steps + 1)
    )
    start = 0.0 if values.learning_rate_scaling == "none" else values.learning_rate
    assert end == after == learning_rate.scaled(values, global_batch)
    rise = (end - start) / steps
    assert end - last == pytest.approx(rise, rel=1e-6, abs=1e-12 * max(start, end))


@given(specs, batches)
def test_on_its_way_it_only_rises_or_only_falls(values, global_batch):
    steps = range(1, values.learning_rate_warmup_steps + 3)
    found = [learning_rate.in_step(values, global_batch, step) for step in steps]
    end = learning_rate.scaled(values, global_batch)
    start = 0.0 if values.learning_rate_scaling == "none" else values.learning_rate
    rounding = 1e-12 * max(start, end)
    sign = 1 if end >= start else -1
    assert all(sign * (b - a) >= -rounding for a, b in itertools.pairwise(found))
    assert all(min(start, end) - rounding <= rate <= max(start, end) + rounding for rate in found)


@given(specs, batches)
def test_no_step_is_taken_with_a_rate_of_zero(values, global_batch):
    assert learning_rate.in_step(values, global_batch, 1) > 0


def test_an_unknown_scaling_is_an_error():
    with pytest.raises(KeyError):
        learning_rate.scaled(spec(scaling="cubic"), 256)
