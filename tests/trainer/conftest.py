"""What several files of tests share."""

import subprocess

import pytest
from temporary_folder import temporary_folder as temporary_folder
from training_runs import LEARNING, REPOSITORY, train


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The converted digits, made in the workflow's environment."""
    folder = tmp_path_factory.mktemp("digits")
    python = REPOSITORY / ".venv" / "bin" / "python"
    for program, *flags in (
        ("fetch_dataset.py", "--folder", folder / "source"),
        ("convert_dataset.py", "--source", folder / "source", "--output", folder),
    ):
        script = REPOSITORY / "workflow_scripts" / program
        subprocess.run([python, script, "digits", *flags], check=True)
    return folder


@pytest.fixture(scope="session")
def one_process(digits, tmp_path_factory):
    log = tmp_path_factory.mktemp("single") / "train.jsonl"
    finished = train(log, digits, batch_per_device=64, **LEARNING)
    assert finished.returncode == 0, finished.stderr
    return log
