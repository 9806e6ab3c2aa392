"""Probes whose items are made up: on the devices, or copied there for each step."""

import pytest

from dlbench.log import event_log
from dlbench.trainer import engine
from support.trainers.training_runs import SERVERS, TWO_DEVICES, events, train

HOW = [
    ("tensorflow", TWO_DEVICES[0]),
    ("tensorflow", SERVERS | {"strategy_options": "update=averaged"}),
    ("jax", {"strategy": "sharded"}),
    ("pytorch", {"strategy": "ddp", "launcher": "local"}),
]


@pytest.mark.parametrize(("framework", "how"), HOW, ids=[how["strategy"] for _, how in HOW])
def test_items_that_are_copied_for_each_step_are_those_that_lie_on_the_devices(
    python, digits, tmp_path, framework, how
):
    own = {"framework": framework, "environment": engine.environment(framework), **how}
    own["devices_per_node"] = 2
    losses = []
    for probe in ("synthetic", "copied"):
        log = tmp_path / probe / "train.jsonl"
        fields = {"dataset": "digits", "evaluate": "no", "steps": 6, "warmup_steps": 1}
        finished = train(log, digits, (), python(framework), probe=probe, **own, **fields)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        paths = event_log.rank_paths(log)
        losses.append([event["loss"] for path in paths for event in events(path, "step")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert len(set(losses[0])) > 1
