"""updates: which fields of updates a run cannot have, and why."""

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine, updates

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
