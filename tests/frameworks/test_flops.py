"""FLOPs counted from the layers of models: the same in every framework."""

import json
import subprocess

import pytest

from dlbench.trainer import model_flops
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import PYTORCH
from support.trainers.published_models import PARAMETERS
from support.trainers.training_runs import events

MODEL = '''
"""Attention and a product of its own, as users write them."""

import torch
from torch import nn
from torch.nn import functional

TASK, INPUT_SHAPE, CLASSES = "classification", (6, 8, 1), 3


class Own(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mix = nn.Parameter(torch.ones(8, 8))
        self.out = nn.Linear(8, classes)
        self.hidden = HIDDEN

    def forward(self, items):
        x = items.flatten(1, 2)
        x, _ = self.attention(x, x, x, need_weights=False)
        x = functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]
        x = self.out(torch.einsum("btc,cd->btd", x, self.mix).mean(1))
        return x if self.hidden is None else self.hidden(x)


def build(input_shape=INPUT_SHAPE, classes=CLASSES):
    return Own(classes)
'''


PROGRAM = REPOSITORY / "tests/support/trainers/counted_flops.py"


def counted(python, framework, *names):
    command = [python(framework), PROGRAM, framework, *names]
    finished = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_a_model_does_the_same_work_under_pytorch_as_keras_and_pytorchs_counter_say(python):
    keras, pytorch = (counted(python, name, *PARAMETERS) for name in ("tensorflow", "pytorch"))
    for name, theirs in keras.items():
        ours = pytorch[name]
        assert (ours["unknown"], theirs["unknown"]) == ([], [])
        assert ours["forward_per_item"] == theirs["forward_per_item"], name
        # Where PyTorch pads in an operation of its own, the zeros are values that it reads.
        assert ours["values_per_item"] == pytest.approx(theirs["values_per_item"], rel=0.02), name
        assert ours["forward_per_item"] == pytest.approx(ours["theirs"], rel=0.05), name


def of_own_model(tmp_path, python, hidden):
    (tmp_path / "own.py").write_text(MODEL.replace("HIDDEN", hidden))
    flags = ["--model-folder", str(tmp_path)]
    fields = {"model": "own", "steps": 1, "flags": flags}
    PYTORCH.trained(tmp_path / "train.jsonl", python("pytorch"), **fields)
    return events(tmp_path / "train.jsonl", "run_start")[0]


@pytest.mark.ci
def test_a_model_of_the_users_own_is_counted_without_a_line_of_theirs(tmp_path, python):
    start = of_own_model(tmp_path, python, "None")
    projections = 4 * 6 * 8 * 8
    attention = model_flops.attention(1, 2, 6, 6, 4, 4) + model_flops.attention(1, 1, 6, 6, 8, 8)
    assert start["flops_unknown"] == []
    assert start["forward_flops_per_item"] == 2 * (projections + attention + 6 * 8 * 8 + 8 * 3)


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        ("lambda x: x + torch.linalg.det(x.T @ x)", "there is no rule for aten::_linalg_det"),
        ("lambda x: x * float(x.sum() > -1e9)", "the model: "),
    ],
)
def test_what_has_no_rule_is_named_and_the_work_is_not_known(tmp_path, python, hidden, named):
    start = of_own_model(tmp_path, python, hidden)
    assert start["forward_flops_per_item"] is None
    assert any(named in reason for reason in start["flops_unknown"])
