"""The programs in workflow_scripts/, as a user starts them."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from dlbench.run_fields import fields
from dlbench.study import runs
from dlbench.trainer import flags

REPOSITORY = Path(__file__).parents[3]


def start(name, *arguments, cwd=REPOSITORY):
    return subprocess.run(
        [sys.executable, REPOSITORY / "workflow_scripts" / name, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


LENET = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "1", "--steps", "1"]
LENET += ["--log", "train.jsonl"]


def trainer_flags():
    return {action.dest: action for action in flags.parser()._actions}


def test_the_flags_of_the_trainer_are_the_fields_of_a_run():
    by_name = trainer_flags()
    assert set(by_name) - {"help"} - set(flags.PLACES) == set(runs.FIELDS) - {"trainer"}
    for name, field in runs.FIELDS.items():
        if name == "environment":  # that of the framework
            assert flags.parse(None, LENET)[0].environment == field.default
        elif name in by_name and field.default is not dataclasses.MISSING:
            assert by_name[name].default == field.default, name
    for name, declared in fields.DECLARED.items():
        if declared.choices:
            assert by_name[name].choices == declared.choices, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw_figure.py", "loss", "--tables", "nowhere"], "runs.parquet: there is no such"),
        (
            ["collect_runs.py", "--config", "absent.yaml"],
            "absent.yaml cannot be read: No such file",
        ),
        (["parse_run.py", "absent.jsonl", "--spec={}"], "expected the fields of a run as JSON"),
        (
            ["fetch_dataset.py", "digit", "--folder", "x", "--stamp", "y"],
            "(did you mean 'digits'?)",
        ),
        (["dlbench", "forget", "no-such-run"], "no run 'no-such-run'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input_ends_a_program_with_one_clear_line(tmp_path, arguments, message):
    finished = start(*arguments, cwd=tmp_path)
    assert finished.returncode != 0
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr


def test_verifying_a_folder_that_is_no_dataset_says_so(tmp_path):
    finished = start("dlbench", "verify-dataset", tmp_path)
    assert finished.returncode != 0
    assert "is this the folder of a converted dataset?" in finished.stdout + finished.stderr


def test_the_pins_of_conda_are_those_of_the_lock_file():
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text())
    locked = {package["name"]: package.get("version") for package in lock["package"]}
    conda = yaml.safe_load((REPOSITORY / "envs/workflow.yaml").read_text())
    pins = [re.split("=+", line) for line in conda["dependencies"] if isinstance(line, str)]
    for name, version in pins:
        if name not in ("python", "uv"):
            assert locked[name] == version, name
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]}
    needed = {name for name in needed if not name.startswith("snakemake")}
    assert needed <= {name for name, _ in pins}


def test_one_version_of_uv_is_named_everywhere():
    files = ("README.md", "envs/workflow.yaml")
    named = {
        version
        for file in files
        for version in re.findall(r"\buv==?(\d[\d.]+\d)", (REPOSITORY / file).read_text())
    }
    assert len(named) == 1


@pytest.mark.parametrize(
    "command",
    [("make_image.py",), ("prepare_image.py",), ("see_images.py",), ("dlbench", "environment")],
    ids=" ".join,
)
def test_what_a_machine_without_our_packages_prepares_needs_the_standard_library_alone(command):
    program = REPOSITORY / "workflow_scripts" / command[0]
    finished = subprocess.run(
        [sys.executable, "-S", "-E", program, *command[1:], "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
