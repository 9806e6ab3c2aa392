"""Frameworks compute the same from the same weights and items; each runs in its environment."""

import json
import subprocess

import numpy as np
import pytest
from paths import REPOSITORY

PROGRAM = REPOSITORY / "tests/support/parity_steps.py"


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("model", ["lenet5", "resnet20", "lstm_ptb"])
def test_losses_and_weights_agree_from_the_same_start(python, tmp_path, model, optimizer):
    for framework in ("tensorflow", "jax"):
        command = [python(framework), PROGRAM, framework, model, tmp_path, optimizer]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
    ours, theirs = (json.loads((tmp_path / f"{f}.json").read_text()) for f in ("jax", "tensorflow"))
    assert len(set(ours)) > 1  # it learns
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    ours, theirs = (np.load(tmp_path / f"{f}.npz") for f in ("jax", "tensorflow"))
    for name in ours.files:
        difference = np.linalg.norm(ours[name] - theirs[name])
        assert difference <= 1e-3 * max(np.linalg.norm(theirs[name]), 1e-3), name
