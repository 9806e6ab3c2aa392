"""import_logs: a loss that an importer does not read becomes a note."""

import re

import pytest

from dlbench.imports import import_logs
from support.logs.log_samples import KINDS, horovod_synthetic
from support.logs.trainer_samples import composer, megatron_line, pytorch_imagenet


def one(path, content):
    path.write_text(content)
    (row,) = import_logs.import_paths([path]).rows
    return row


OTHERS = ("megatron", "pytorch_imagenet", "torchtitan")
LOSSES = ("step 10 my_loss: 2.5", "Loss = 2.5", "{'loss': 2.5}", '"train_loss", "value": 2.5')


@pytest.mark.parametrize("line", LOSSES)
def test_a_loss_that_the_user_prints_is_a_note(tmp_path, line):
    content = horovod_synthetic(0.125, 20)
    assert "loss" not in one(tmp_path / "log", content)["notes"]
    row = one(tmp_path / "log", content.replace("Iter #1", f"{line}\nIter #1"))
    assert "a loss that is not read: line 7, " in row["notes"]
    assert line[2:8].strip("'") in row["notes"]


@pytest.mark.parametrize("line", ["loss scale: 2.0", "total_loss", "lossless 2.5", "loss: nan"])
def test_what_is_no_loss_is_none(tmp_path, line):
    content = horovod_synthetic(0.125, 20).replace("Iter #1", f"{line}\nIter #1")
    assert "not read" not in one(tmp_path / "log", content)["notes"]


def test_a_loss_is_noted_of_the_run_in_whose_lines_it_stands(tmp_path):
    second = horovod_synthetic(0.5, 20).replace("Iter #0", "loss: 2.5\nIter #0")
    (tmp_path / "log").write_text(horovod_synthetic(0.125, 20) + second)
    first, second = import_logs.import_paths([tmp_path / "log"]).rows
    assert "not read" not in first["notes"]
    assert "not read" in second["notes"]


def test_losses_of_megatrons_forks_are_read_and_others_noted(tmp_path):
    lines = megatron_line(10, 20, 500) + megatron_line(20, 20, 500)
    row = one(tmp_path / "log", lines.replace("lm loss:", "lm-loss:"))
    assert row["final_loss"] == 7.98
    assert "not read" not in row["notes"]
    more = "| mtp_1 loss: 9.0E+00 | load_balancing_loss: 1.0 | loss scale"
    row = one(tmp_path / "log", lines.replace("| loss scale", more))
    assert row["final_loss"] == 7.98
    assert "losses left out: load_balancing_loss, mtp_1 loss" in row["notes"]
    row = one(tmp_path / "log", lines.replace("lm loss:", "sequence loss:"))
    assert "final_loss" not in row
    assert "losses left out: sequence loss" in row["notes"]


@pytest.mark.parametrize("kind", ["composer", "hf_trainer", "lightning_csv", *OTHERS])
def test_a_loss_that_becomes_nan_is_said(tmp_path, kind):
    content = KINDS[kind](0.125, 12)
    last = r"7\.989" if kind == "lightning_csv" else r"7\.988"
    row = one(tmp_path / "log", re.sub(last + r"\d*(?:[eE]\+00)?\b", "NaN", content))
    assert "final_loss" not in row
    assert "the loss is nan at step 12" in row["notes"]
    assert "not read" not in row["notes"]


@pytest.mark.parametrize(
    ("content", "old", "new", "loss", "note"),
    [
        (composer, "\t Train loss/", "\t Train loss/train/aux: 1.0000\n\t Train loss/", 7.98,
         "losses left out: loss/train/aux"),
        (pytorch_imagenet, "Loss ", "Loss: ", None, "no loss could be read in 20 lines"),
    ],
)  # fmt: skip
def test_losses_beside_the_one_that_is_read_or_in_other_words_are_noted(
    tmp_path, content, old, new, loss, note
):
    row = one(tmp_path / "log", content(0.125, 20).replace(old, new))
    assert row.get("final_loss") == loss
    assert note in row["notes"]
