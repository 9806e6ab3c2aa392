"""In each framework: AdamW, clipping, gradient accumulation, learning rates, parameter counts."""

import json
import subprocess

import numpy as np
import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine
from dlbench.trainer.schedule import Schedule
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import JAX, ON_DIGITS, PYTORCH, losses, mean_losses

PROGRAM = REPOSITORY / "tests/support/trainers/update_steps.py"
RATE, DECAY, NORM = 1 / 1024, 64.0, 1 / 16
SCHEDULE = {"learning_rate_warmup_steps": 2, "learning_rate_decay": "cosine"}
WAYS = {
    "plain": "",
    "parts": "--accumulate-steps 4",
    "clipped": f"--clip-norm {NORM} --learning-rate {RATE}",
    "unclipped": f"--clip-norm 1e9 --learning-rate {RATE}",
    # Which has biases that begin with ones.
    "adamw": f"--model lstm_ptb --optimizer adamw --learning-rate {RATE} --weight-decay {DECAY}",
    "schedule": " ".join(f"--{n.replace('_', '-')} {value}" for n, value in SCHEDULE.items()),
    "bfloat16": "--precision bfloat16 --optimizer adamw --weight-decay 0.01 --accumulate-steps 2",
}


@pytest.fixture(scope="module", params=engine.names())
def found(request, python, tmp_path_factory):
    """What was found of each way, by its name."""
    folder = tmp_path_factory.mktemp("updates")
    command = [python(request.param), PROGRAM, request.param, folder, json.dumps(WAYS)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return {name: dict(np.load(folder / f"{name}.npz")) for name in WAYS}


def weights(found, when):
    return {name: array for name, array in found.items() if name.startswith(when)}


def moved(found):
    """The norm of what all weights moved, over all steps."""
    parts = [
        np.linalg.norm(after - before)
        for before, after in zip(
            weights(found, "before/").values(), weights(found, "after/").values(), strict=True
        )
    ]
    return np.linalg.norm(parts)


@pytest.mark.ci
def test_a_batch_in_parts_gives_the_losses_and_weights_of_the_whole(found):
    np.testing.assert_allclose(found["parts"]["losses"], found["plain"]["losses"], rtol=1e-5)
    for name, array in weights(found["plain"], "after/").items():
        np.testing.assert_allclose(found["parts"][name], array, atol=1e-6, err_msg=name)


@pytest.mark.ci
def test_gradients_are_shortened_to_the_norm_where_they_are_longer(found):
    steps = len(found["clipped"]["losses"])
    assert 0.9 * steps * RATE * NORM < moved(found["clipped"]) <= 1.001 * steps * RATE * NORM
    assert moved(found["unclipped"]) > 2 * steps * RATE * NORM


@pytest.mark.ci
def test_adamw_shrinks_weights_with_two_axes_or_more_by_rate_times_decay_and_no_others(found):
    adamw = found["adamw"]
    steps = len(adamw["losses"])
    left = {1: 1.0, 2: (1 - RATE * DECAY) ** steps}  # 0.68 of those with two axes
    for name, before in weights(adamw, "before/").items():
        if not before.any():
            continue
        # Adam itself moves a number by a rate at most in a step, or a little more.
        moved_by = np.abs(adamw[name.replace("before/", "after/")] - left[before.ndim] * before)
        assert moved_by.max() < 2 * steps * RATE, name


@pytest.mark.ci
def test_the_learning_rate_rises_and_falls_as_the_schedule_says(found):
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=6, warmup_steps=0,
              **SCHEDULE)  # fmt: skip
    np.testing.assert_allclose(
        found["schedule"]["rates"], Schedule(run, None).learning_rates(1, 6), rtol=1e-6
    )
    assert found["schedule"]["rates"][-1] < found["schedule"]["rates"][1]


@pytest.mark.ci
def test_in_bfloat16_weights_and_what_adamw_remembers_of_them_are_float32(found):
    assert found["bfloat16"]["types"].tolist() == ["float32"]
    assert np.isfinite(found["bfloat16"]["losses"]).all()
    # Less than half of bfloat16's precision, 2 ** -8, of a weight: it would be lost there.
    before, after = (weights(found["bfloat16"], when) for when in ("before/", "after/"))
    steps = [np.abs(a - b) / np.abs(b) for b, a in zip(before.values(), after.values(), strict=True)
             if b.ndim > 1]  # fmt: skip
    assert any(((step > 0) & (step < 2**-10)).any() for step in steps)


@pytest.mark.parametrize(
    ("framework", "how"),
    [
        (JAX, JAX.two_processes),
        (PYTORCH, PYTORCH.two_processes),
        (PYTORCH, {**PYTORCH.two_processes, "strategy": "fsdp"}),
    ],
    ids=["sharded", "ddp", "fsdp"],
)
def test_two_devices_clip_their_mean_gradient_once_all_parts_are_computed(
    framework, how, python, digits, tmp_path
):
    fields, own = {**ON_DIGITS, "steps": 8, "clip_norm": 0.25}, python(framework.name)
    one, two = tmp_path / "one" / "train.jsonl", tmp_path / "two" / "train.jsonl"
    framework.trained(one, own, digits, **{**fields, "batch_per_device": 64})
    framework.trained(two, own, digits, **fields, **how, accumulate_steps=2)
    assert mean_losses(two) == pytest.approx(losses(one), rel=1e-4)
