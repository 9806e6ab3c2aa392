"""How long a run waits for a slow source: the reader's limit, and the share of a step."""

import os
import statistics

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.programs import forked
from support.trainers.slow_training import LONGER, SOURCE_S, STEP_S
from support.trainers.training_runs import events, how_forked

SLOW = REPOSITORY / "tests/support/trainers/slow_training.py"
BATCH, WITHIN = 8, 0.1
# What both times are multiplied by, one after the other, until theory holds: where other programs
# have the processors, a process that has slept goes on milliseconds later.
TRIES = (1, 3, 10)
ONE = {"input_workers": 1}
# (framework, how it reads, whether batches are made while the step computes)
READERS = [
    ("tensorflow", {"input": "tf.data"}, True),
    ("jax", {"input": "dlbench"} | ONE, True),
    ("jax", {"input": "grain"} | ONE, True),
    # Arrays are made in the trainer itself, which on CPUs computes the step as well.
    ("pytorch", {"input": "dlbench"}, False),
    ("pytorch", {"input": "dlbench"} | ONE, True),
    ("pytorch", {"input": "torch"} | ONE, True),
    ("pytorch", {"input": "grain"} | ONE, True),
]


def step_s(log, python, data, longer, **fields):
    """Seconds of the median step of a run."""
    run = Run(model="lenet5", dataset="digits", batch_per_device=BATCH, **fields)
    command = [python, SLOW, *run.flags(), "--data", data, "--log", log]
    how = how_forked([str(word) for word in command], run)
    finished = forked.run(**how, env=os.environ | {LONGER: str(longer)}, timeout=300)
    assert finished.returncode == 0, finished.stderr
    steps = [event for event in events(log, "step") if not event["warm_up"]]
    if run.mode == "input":
        assert {event["loss"] for event in steps} == {0.0}
        assert events(log, "run_start")[0].get("parameters") is None
        assert "loss" not in finished.stderr
    return statistics.median(event["step_time_s"] for event in steps)


def test_all_readers_of_all_frameworks_are_looked_at():
    looked_at = {(framework, how["input"]) for framework, how, _ in READERS}
    assert looked_at == {(name, own) for name in engine.names() for own in engine.inputs(name)}


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    ("framework", "how", "ahead"),
    READERS,
    ids=[f"{framework} {' '.join(map(str, how.values()))}" for framework, how, _ in READERS],
)
def test_the_wait_for_a_slow_source_is_what_theory_says(
    python, having, digits, tmp_path, framework, how, ahead
):
    environment = engine.environment(framework)
    own = {"framework": framework, "environment": environment, "warmup_steps": 10}
    having(how["input"], framework)
    fields = {
        "alone": {"mode": "input", **how},
        "whole": {"mode": "forward", **how},
        "computing": {"mode": "forward", "probe": "synthetic"},
    }
    # Batches made meanwhile are waited for by what they take longer, others whole.
    share = (SOURCE_S - STEP_S) / SOURCE_S if ahead else SOURCE_S / (SOURCE_S + STEP_S)
    tries = {}
    for longer in TRIES:
        own["steps"] = 40 if longer == 1 else 20
        found = {
            name: step_s(
                tmp_path / f"{name}{longer}", python(framework), digits, longer, **own, **each
            )
            for name, each in fields.items()
        }
        found["share"] = 1 - found["computing"] / found["whole"]
        tries[longer] = found
        as_slow = found["alone"] == pytest.approx(longer * SOURCE_S, rel=WITHIN)
        if as_slow and found["share"] == pytest.approx(share, rel=WITHIN):
            print(f"{framework} {how}: expected a share of {share:.3f}, found {tries}")
            return
    said = f"expected {SOURCE_S} s by itself and a share of {share:.3f}, found {tries}"
    # What sleeps never wakes too early: on a machine that has no time for it, this still holds.
    least = {"alone": SOURCE_S, "whole": SOURCE_S + (0 if ahead else STEP_S), "computing": STEP_S}
    for longer, found in tries.items():
        assert all(found[name] >= longer * time_s for name, time_s in least.items()), said
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > cores + 1:
        pytest.skip(f"other programs have the {cores} processors (load {load:.1f}): {said}")
    pytest.fail(said)
