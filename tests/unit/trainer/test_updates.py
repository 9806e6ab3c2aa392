"""updates: which fields a run cannot have, and why; properties of the rate of each step."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.study.runs import Run
from dlbench.trainer import engine, updates
from dlbench.trainer.updates import learning_rate_in_step, scaled_learning_rate

LENET = {"model": "lenet5", "dataset": "digits", "batch_per_device": 12, "steps": 10}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.01}
JAX = {"framework": "jax", "strategy": "sharded", "devices_per_node": 2}


def reason(**fields):
    run = Run(**LENET | fields)
    strategy = engine.strategy_of(run)
    return updates.unsupported(run, strategy) or strategy.unsupported(run)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        ADAMW,
        {"accumulate_steps": 12, "mode": "forward_backward"},
        {"clip_norm": 1.0, "strategy": "horovod", "devices_per_node": 2},
        {"accumulate_steps": 3, "strategy": "mirrored", "devices_per_node": 2},
        JAX | {"clip_norm": 1.0, "accumulate_steps": 2},
    ],
)
def test_what_every_framework_can_do_is_done(fields):
    assert reason(**fields) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"accumulate_steps": 5}, "12 cannot be cut into 5"),
        ({"accumulate_steps": 2, "mode": "forward"}, "mode forward computes none"),
        ({"clip_norm": 1.0, "mode": "forward"}, "clip_norm is of gradients, and mode forward"),
        ({"optimizer": "adamw"}, "needs a weight_decay above 0"),
        ({"weight_decay": 0.1}, "this run has sgd"),
        ({"clip_norm": 1.0, "strategy": "mirrored"}, "before they are added up"),
        ({"clip_norm": 1.0, "strategy": "multiworker"}, "before they are added up"),
        (
            JAX | {"accumulate_steps": 2, "strategy_options": "batch_norm=global"},
            "needs batch_norm=local",
        ),
    ],
)
def test_a_run_whose_update_is_not_what_it_says_is_refused_with_the_reason(fields, words):
    assert words in reason(**fields)


def test_biases_and_gains_do_not_decay():
    assert [updates.decays(axes) for axes in (0, 1, 2, 4)] == [False, False, True, True]


# The learning rate.

SCALINGS = ("none", "linear", "sqrt")
batches = st.integers(1, 1 << 16)
rates = st.floats(1e-6, 100)
LAST = 10**6  # step of the runs here


def spec(rate=0.1, scaling="linear", batch=256, warmup=0, decay="none"):
    return SimpleNamespace(
        learning_rate=rate,
        learning_rate_scaling=scaling,
        learning_rate_batch=batch,
        learning_rate_warmup_steps=warmup,
        learning_rate_decay=decay,
    )


specs = st.builds(spec, rates, st.sampled_from(SCALINGS), batches, st.integers(1, 1000))


@given(rates, st.sampled_from(SCALINGS), batches, batches, st.integers(1, 10**6))
def test_without_a_warm_up_it_is_the_same_in_all_steps(rate, scaling, batch, global_batch, step):
    values = spec(rate, scaling, batch)
    assert learning_rate_in_step(values, global_batch, step, LAST) == scaled_learning_rate(
        values, global_batch
    )


@given(rates, batches, st.integers(1, 256))
def test_it_grows_with_the_batch_or_with_its_root(rate, batch, factor):
    expected = {"none": 1, "linear": factor, "sqrt": factor**0.5}
    for scaling, times in expected.items():
        scaled = scaled_learning_rate(spec(rate, scaling, batch), batch * factor)
        assert scaled == pytest.approx(rate * times, rel=1e-12)


@given(specs, batches)
def test_the_warm_up_ends_without_a_jump(values, global_batch):
    steps = values.learning_rate_warmup_steps
    last, end, after = (
        learning_rate_in_step(values, global_batch, step, LAST)
        for step in (steps - 1, steps, steps + 1)
    )
    start = 0.0 if values.learning_rate_scaling == "none" else values.learning_rate
    assert end == after == scaled_learning_rate(values, global_batch)
    rise = (end - start) / steps
    assert end - last == pytest.approx(rise, rel=1e-6, abs=1e-12 * max(start, end))


@given(specs, batches)
def test_on_its_way_it_only_rises_or_only_falls(values, global_batch):
    steps = range(1, values.learning_rate_warmup_steps + 3)
    found = [learning_rate_in_step(values, global_batch, step, LAST) for step in steps]
    end = scaled_learning_rate(values, global_batch)
    start = 0.0 if values.learning_rate_scaling == "none" else values.learning_rate
    rounding = 1e-12 * max(start, end)
    sign = 1 if end >= start else -1
    assert all(sign * (b - a) >= -rounding for a, b in itertools.pairwise(found))
    assert all(min(start, end) - rounding <= rate <= max(start, end) + rounding for rate in found)


@given(specs, batches, st.sampled_from(["none", "cosine"]), st.integers(1, 2000))
def test_no_step_is_taken_with_a_rate_of_zero(values, global_batch, decay, last):
    values.learning_rate_decay = decay
    for step in (1, last):
        assert learning_rate_in_step(values, global_batch, step, last) > 0


@given(rates, st.integers(0, 1000), st.integers(1, 1000))
def test_a_cosine_begins_at_the_full_rate_and_is_at_half_of_it_halfway(rate, warmup, half):
    values, last = spec(rate, "none", warmup=warmup, decay="cosine"), warmup + 2 * half

    def found(step):
        return learning_rate_in_step(values, 1, step, last)

    assert found(warmup + 1) == rate
    assert found(warmup + 1 + half) == pytest.approx(rate / 2)
    falling = [found(step) for step in range(max(1, warmup), last + 1)]
    assert falling == sorted(falling, reverse=True)


def test_only_rates_that_change_are_set_anew():
    assert not updates.learning_rate_changes(spec())
    warming = spec(warmup=3)
    changes = [updates.learning_rate_changes(warming, step) for step in (None, 3, 4)]
    assert changes == [True, True, False]
    assert updates.learning_rate_changes(spec(decay="cosine"), 10)
