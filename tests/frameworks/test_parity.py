"""Frameworks compute the same from the same weights and items; each runs in its environment.

What differs is the last digit of float32. A rectifier whose input is near zero makes of it a
gradient or none, so that the first gradient of ResNet-20 differs by a thousandth from that in
float64, in each framework (tests/trainer/test_models.py). In float64 frameworks agree to ten digits
and more: that is what shows an error in a formula.
"""

import json
import subprocess

import numpy as np
import pytest

from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.trainers.parity_steps import CASES

PROGRAM = REPOSITORY / "tests/support/trainers/parity_steps.py"
OTHERS = [name for name in engine.names() if name != engine.DEFAULT]
NARROW, WIDE = ([n for n, c in CASES.items() if c.precision == p] for p in ("float32", "float64"))
CI = ("lenet5-sgd-float32", "lstm_ptb-sgd-float32-schedule", "lenet5-adamw-float64-decay")


def levels(cases):
    return [pytest.param(name, marks=pytest.mark.ci if name in CI else ()) for name in cases]


@pytest.fixture(scope="module")
def results(python, tmp_path_factory):
    """A function that gives losses and weights of a framework and a case; each is trained once."""
    folder, trained = tmp_path_factory.mktemp("parity"), set()

    def of(framework, case):
        of_precision = NARROW if case in NARROW else WIDE
        cases = [name for name in of_precision if (name in CI) == (case in CI)]
        for name in (engine.DEFAULT, framework):  # the first one gives the weights
            if (name, *cases) not in trained:
                command = [python(name), PROGRAM, name, folder, *cases]
                finished = subprocess.run(command, capture_output=True, text=True, check=False)
                assert finished.returncode == 0, finished.stderr
                trained.add((name, *cases))
        losses = json.loads((folder / case / f"{framework}.json").read_text())
        return losses, dict(np.load(folder / case / f"{framework}.npz"))

    return of


def distance(ours, theirs, names):
    """Of weights together: the norm of their difference over that of theirs."""
    differences = [np.linalg.norm(ours[name] - theirs[name]) for name in names]
    return np.linalg.norm(differences) / np.linalg.norm([np.linalg.norm(theirs[n]) for n in names])


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", levels(NARROW))
def test_losses_and_weights_agree_from_the_same_start(results, framework, case):
    (ours, weights), (theirs, their_weights) = results(framework, case), results("tensorflow", case)
    assert len(set(ours)) > 1  # it learns
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert distance(weights, their_weights, weights.keys()) < 1e-3


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", levels(WIDE))
def test_in_float64_each_weight_agrees_to_many_digits(results, framework, case):
    (ours, weights), (theirs, their_weights) = results(framework, case), results("tensorflow", case)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    for name in weights:
        assert distance(weights, their_weights, [name]) < 1e-10, name
