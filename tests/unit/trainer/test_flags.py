"""flags: the trainer accepts the flags of every run."""

import dataclasses

import pytest

from dlbench.common.run_fields import DECLARED, FIELDS, value_type
from dlbench.study.runs import Run
from dlbench.trainer import flags

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=4, warmup_steps=1, steps=3)


def parsed(run):
    return flags.parser().parse_args([*run.flags(), "--log", "train.jsonl"])


def test_every_whole_number_of_a_run_is_taken():
    for name, field in FIELDS.items():
        if value_type(field) is int and name != "epochs":
            value = max(DECLARED[name].minimum or 0, 1) + (name in ("repeat", "sentinel"))
            assert getattr(parsed(dataclasses.replace(RUN, **{name: value})), name) == value


def test_a_dataset_without_a_file_is_taken_if_its_converted_folder_is_named(capsys):
    given = ["--model", "cnn12", "--dataset", "fotos", "--batch-per-device", "4", "--steps", "3"]
    given += ["--log", "train.jsonl"]
    spec, where = flags.parse(None, [*given, "--data", "results/data/fotos"])
    assert (spec.dataset, where.data) == ("fotos", "results/data/fotos")
    with pytest.raises(SystemExit) as error:
        flags.parse(None, given)
    assert error.value.code == 2
    assert "no file datasets/fotos.py" in capsys.readouterr().err
