"""What a run waits for a slow source: the reader's own limit, and the share of a step."""

import statistics

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.programs import forked
from support.trainers.slow_training import SOURCE_S
from support.trainers.training_runs import events, how_forked

SLOW = REPOSITORY / "tests/support/trainers/slow_training.py"
BATCH = 8


def step_s(log, python, data, **fields):
    """Seconds of the median step of a run."""
    run = Run(model="lenet5", dataset="digits", batch_per_device=BATCH, steps=20, **fields)
    command = [python, SLOW, *run.flags(), "--data", data, "--log", log]
    finished = forked.run(**how_forked([str(word) for word in command], run), timeout=300)
    assert finished.returncode == 0, finished.stderr
    steps = [event for event in events(log, "step") if not event["warm_up"]]
    if run.mode == "input":
        assert {event["loss"] for event in steps} == {0.0}
        assert events(log, "run_start")[0].get("parameters") is None
        assert "loss" not in finished.stderr
    return statistics.median(event["step_time_s"] for event in steps)


@pytest.mark.parametrize(
    ("framework", "how", "runs_ahead"),
    [
        ("tensorflow", {}, True),
        ("jax", {"input_workers": 1}, True),
        # Arrays are made in the trainer itself, which on CPUs computes the step as well.
        ("pytorch", {}, False),
    ],
    ids=["tensorflow", "jax", "pytorch"],
)
def test_the_wait_for_a_slow_source_is_what_its_own_limit_says(
    python, digits, tmp_path, framework, how, runs_ahead
):
    environment = engine.environment(framework)
    own = {"framework": framework, "environment": environment, "warmup_steps": 5}
    fields = {
        "alone": {"mode": "input", **how},
        "whole": {"mode": "forward", **how},
        "computing": {"mode": "forward", "probe": "synthetic"},
    }
    found = {
        name: step_s(tmp_path / name, python(framework), digits, **own, **each)
        for name, each in fields.items()
    }
    assert BATCH / found["alone"] == pytest.approx(BATCH / SOURCE_S, rel=0.1)
    wait_s = found["alone"] - (found["computing"] if runs_ahead else 0.0)
    share = wait_s / (found["computing"] + wait_s)
    waited = 1 - found["computing"] / found["whole"]
    assert waited == pytest.approx(share, rel=0.1), found
