"""Frameworks compute the same from the same weights and items, and update as publications say.

What differs is the last digit of float32. A rectifier whose input is near zero makes of it a
gradient or none, so that the first gradient of ResNet-20 differs by a thousandth from that in
float64, in each framework (tests/trainer/test_models.py). In float64 frameworks agree to ten digits
and more: that is what shows an error in a formula.
"""

import json
import subprocess
import types

import numpy as np
import pytest

from dlbench.trainer import engine
from dlbench.trainer.schedule import Schedule
from support.machines.paths import REPOSITORY
from support.trainers.parity_steps import CASES, DECAY, NORM, RATE, STEPS

PROGRAM = REPOSITORY / "tests/support/trainers/parity_steps.py"
PARTS, CLIPPED, UNCLIPPED = (f"lenet5-sgd-float32-{w}" for w in ("parts", "clipped", "unclipped"))
DECAYED, BFLOAT16 = "lstm_ptb-adamw-float32-decay", "lenet5-adamw-bfloat16-parts"
UPDATES = (PARTS, CLIPPED, UNCLIPPED, DECAYED, BFLOAT16)
PLAIN, SCHEDULE = "lenet5-sgd-float32", "lstm_ptb-sgd-float32-schedule"
CI = (PLAIN, SCHEDULE, "lenet5-adamw-float64-decay", *UPDATES)


@pytest.fixture(scope="module")
def results(python, tmp_path_factory):
    """A function that gives what a framework makes of a case; each is trained once."""
    folder, trained = tmp_path_factory.mktemp("parity"), set()

    def group(case):
        return CASES[case].precision == "float64", case in CI

    def of(framework, case):
        cases = [name for name in CASES if group(name) == group(case)]
        for name in (engine.DEFAULT, framework):  # the first one gives the weights
            if (name, *cases) not in trained:
                command = [python(name), PROGRAM, name, folder, *cases]
                finished = subprocess.run(command, capture_output=True, text=True, check=False)
                assert finished.returncode == 0, finished.stderr
                trained.add((name, *cases))
        found = json.loads((folder / case / f"{framework}.json").read_text())
        before, after = (dict(np.load(folder / case / f"{n}.npz")) for n in ("weights", framework))
        return types.SimpleNamespace(**found, before=before, after=after)

    return of


def distance(ours, theirs, names):
    """Of weights together: the norm of their difference over that of theirs."""
    differences = [np.linalg.norm(ours[name] - theirs[name]) for name in names]
    return np.linalg.norm(differences) / np.linalg.norm([np.linalg.norm(theirs[n]) for n in names])


@pytest.mark.parametrize("framework", [name for name in engine.names() if name != engine.DEFAULT])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.ci if name in CI else ())
        for name in CASES
        if name not in UPDATES
    ],
)
def test_losses_and_weights_agree_from_the_same_start(results, framework, case):
    ours, theirs = results(framework, case), results(engine.DEFAULT, case)
    assert len(set(ours.losses)) > 1  # it learns
    if CASES[case].precision == "float32":
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-4)
        assert distance(ours.after, theirs.after, ours.after) < 1e-3
        if case.startswith("mixtral"):  # whose routers also follow a loss that is not logged
            changes = [{n: r.after[n] - r.before[n] for n in r.after} for r in (ours, theirs)]
            assert all(distance(*changes, [n]) < 1e-2 for n in ours.after if "router" in n)
        return
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-10)
    for name in ours.after:
        assert distance(ours.after, theirs.after, [name]) < 1e-10, name


def moved(found):
    """The norm of what all weights moved, over all steps."""
    return np.linalg.norm(
        [np.linalg.norm(found.after[name] - before) for name, before in found.before.items()]
    )


@pytest.mark.ci
@pytest.mark.parametrize("framework", engine.names())
def test_gradients_are_summed_over_parts_and_shortened_to_the_norm_where_longer(results, framework):
    plain, parts, clipped, unclipped = (
        results(framework, case) for case in (PLAIN, PARTS, CLIPPED, UNCLIPPED)
    )
    np.testing.assert_allclose(parts.losses, plain.losses, rtol=1e-4)
    for name, array in plain.after.items():
        np.testing.assert_allclose(parts.after[name], array, atol=1e-5, err_msg=name)
    longest = STEPS * RATE / 8 * NORM
    assert 0.9 * longest < moved(clipped) <= 1.001 * longest
    assert moved(unclipped) > 2 * longest


@pytest.mark.ci
@pytest.mark.parametrize("framework", engine.names())
def test_adamw_shrinks_weights_with_two_axes_or_more_by_rate_times_decay_and_no_others(
    results, framework
):
    found, rate = results(framework, DECAYED), RATE / 8
    left = {1: 1.0, 2: (1 - rate * DECAY) ** STEPS}  # 0.28 of those with two axes
    for name, before in found.before.items():
        if before.any():
            # Adam itself moves a number by a rate at most in a step, or a little more.
            moved_by = np.abs(found.after[name] - left[before.ndim] * before)
            assert moved_by.max() < 2 * STEPS * rate, name


@pytest.mark.ci
@pytest.mark.parametrize("framework", engine.names())
def test_the_learning_rate_rises_and_falls_as_the_schedule_says(results, framework):
    rates = results(framework, SCHEDULE).rates
    schedule = Schedule(CASES[SCHEDULE].spec(framework), None)
    np.testing.assert_allclose(rates, schedule.learning_rates(1, STEPS), rtol=1e-6)
    assert rates[0] < max(rates) > rates[-1]


@pytest.mark.ci
@pytest.mark.parametrize("framework", engine.names())
def test_in_bfloat16_weights_and_what_adamw_remembers_of_them_are_float32(results, framework):
    found = results(framework, BFLOAT16)
    assert found.types == ["float32"]
    assert np.isfinite(found.losses).all()
    # Less than half of bfloat16's precision, 2 ** -8, of a weight: it would be lost there.
    steps = [np.abs(found.after[name] - b) / np.abs(b) for name, b in found.before.items()
             if b.ndim > 1]  # fmt: skip
    assert any(((step > 0) & (step < 2**-10)).any() for step in steps)
