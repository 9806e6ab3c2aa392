"""trainer_environments: what environments say of themselves, and which Pythons they can have."""

import dataclasses
import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common.files import sha256
from dlbench.plan import planning, skipping
from dlbench.plan.skipping import Devices
from dlbench.records import judgement
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.study.trainer_environments import lacks_python
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.studies import made_studies

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
DEVICES = Devices("cpu", None, cores=2)
NAMES = ("train", "train-latest", "jax", "pytorch")
BLOCK = made_studies.BLOCK | {"steps": 5}


def test_runs_of_the_time_of_python_3_11_alone_stand(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    jax = dataclasses.replace(RUN, framework="jax", environment="jax")
    digests = [judgement.made_from(run)["environment"] for run in (RUN, jax)]
    assert digests == [
        "6a9d12a27f8a1c0370783cb3c0545fc32fcf93e2a051e7272af1742ccd42ee83",
        "d3c90a81d94a9379fd44d53f0f708259ffa5f8d2752eb211ffe684d992e928a2",
    ]


def test_what_is_said_of_a_lock_file_is_said_of_the_one_that_is_there():
    for lock in REPOSITORY.glob("envs/*/uv.lock"):
        message = trainer_environments.settings(lock.parent).get("lock")
        assert message is None or message["sha256"] == sha256(lock), lock


def test_a_lock_file_counts_by_its_own_digest_unless_it_installs_what_another_did(tmp_path):
    (tmp_path / "uv.lock").write_text("locked")
    own = trainer_environments.lock_digest(tmp_path)
    assert own == sha256(tmp_path / "uv.lock")
    message = f'[tool.dlbench.lock]\nsha256 = "{own}"\ninstalls_as = "another"\n'
    (tmp_path / "pyproject.toml").write_text(message)
    assert trainer_environments.lock_digest(tmp_path) == "another"
    (tmp_path / "uv.lock").write_text("locked anew")
    assert trainer_environments.lock_digest(tmp_path) == sha256(tmp_path / "uv.lock")
    # A damaged description is left to uv.
    (tmp_path / "pyproject.toml").write_text("[tool")
    assert trainer_environments.settings(tmp_path) == {}


@pytest.fixture
def machine(tmp_path, monkeypatch, programs):
    """A function that gives the machine one Python, which runs the workflow; uv finds no other."""
    for name in NAMES:
        (tmp_path / "envs" / name).mkdir(parents=True)
        for file in ("pyproject.toml", "uv.lock"):
            (tmp_path / "envs" / name / file).symlink_to(REPOSITORY / "envs" / name / file)
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.chdir(tmp_path)

    def forget():
        for known in (lacks_python, trainer_environments._chosen):
            known.cache_clear()

    def has(python, found=False):
        programs("uv", "exit 0" if found else "exit 2")
        monkeypatch.setattr(lacks_python.__wrapped__, "__defaults__", (python,))
        forget()

    yield has
    forget()


def of(environments):
    """A run of each framework whose usual environment is one of these."""
    return [
        dataclasses.replace(RUN, framework=name)
        for name in engine.names()
        if engine.environment(name) in environments
    ]


@pytest.mark.parametrize(
    ("python", "lacking", "trained_in"),
    [
        ("3.11.7", [], "train"),
        ("3.12.1", [], "train"),
        ("3.13.0", ["train"], "train-latest"),
        ("3.14.2", ["train", "train-latest"], "train"),
    ],
)
def test_runs_that_name_no_environment_have_the_first_that_a_python_of_the_machine_fits(
    python, lacking, trained_in, machine
):
    machine(python)
    reasons = {name: lacks_python(name) for name in NAMES}
    assert [name for name, reason in reasons.items() if reason] == lacking
    assert trainer_environments.chosen("train") == trained_in
    assert trainer_environments.chosen("jax") == "jax"
    (run,) = made_studies.study().runs
    assert run.environment == trained_in
    assert ("environment" in run.values()) == (trained_in != "train")  # or its id would change
    assert (skipping.skip_reason(run, DEVICES, made_studies.study()) is None) == (python < "3.14")


def test_where_the_only_python_is_too_new_for_an_environment_it_says_what_to_install(machine):
    machine("3.14.2")
    assert lacks_python("train") == (
        "envs/train needs Python >=3.11,<3.13, which is not installed: uv finds none (the "
        "workflow's is 3.14.2). Install one, as with `uv python install 3.12`, or give another "
        "environment"
    )
    trainer_environments.trainer_python("train").parent.mkdir(parents=True)
    trainer_environments.trainer_python("train").touch()
    machine("3.14.2")
    assert lacks_python("train") is None
    machine("3.14.2", found=True)
    assert lacks_python("train-latest") is None


def test_what_the_config_says_or_no_python_of_the_machine_trains_is_not_chosen(machine):
    machine("3.13.0")
    given = {"train": {"source": "docker://tensorflow", "digest": f"sha256:{64 * '0'}"}}
    for fields in ({"environment": "train"}, {"runtime": "apptainer"}, {"launcher": "kubernetes"}):
        assert made_studies.study(BLOCK | fields, images=given).runs[0].environment == "train"
    pair = made_studies.study(BLOCK | {"runtime": ["bare", "apptainer"]}).runs
    assert [run.environment for run in pair] == 2 * ["train-latest"]


def test_what_was_chosen_stays_when_another_python_appears(machine):
    machine("3.14.2")  # where nothing fits nothing is kept, and what is installed later decides
    trainer_environments.write_choices(of(["train", "jax"]))
    assert json.loads(trainer_environments.CHOSEN.read_text()) == {"jax": "jax"}
    machine("3.13.0")
    trainer_environments.write_choices(of(["train", "jax"]))
    kept = trainer_environments.CHOSEN.read_text()
    assert json.loads(kept) == {"jax": "jax", "train": "train-latest"}
    machine("3.12.1")
    trainer_environments.write_choices(of(["train", "pytorch"]))
    assert trainer_environments.chosen("train") == "train-latest"
    more = json.loads(trainer_environments.CHOSEN.read_text())
    assert more == json.loads(kept) | {"pytorch": "pytorch"}
    trainer_environments.CHOSEN.unlink()
    machine("3.12.1")
    assert trainer_environments.chosen("train") == "train"
    trainer_environments.write_choices(of(["train"]))
    machine("3.13.0")  # the results were brought to another machine
    assert trainer_environments.chosen("train") == "train"


@pytest.mark.parametrize(
    ("text", "found"), [("{", "no JSON object"), ('{"train": 1}', "{'train': 1}")]
)
def test_a_damaged_choice_is_named_with_what_to_do(text, found, machine):
    machine("3.13.0")
    trainer_environments.CHOSEN.parent.mkdir()
    trainer_environments.CHOSEN.write_text(text)
    message = f'in {{"train": "train-latest"}}, found {found}; if the file is deleted, the next'
    with pytest.raises(Error, match=re.escape(message)):
        made_studies.study()


def test_a_choice_that_cannot_be_written_is_an_error_that_names_the_file(machine):
    machine("3.13.0")
    trainer_environments.CHOSEN.parent.symlink_to("/proc/self")
    with pytest.raises(Error, match=r"results/chosen_environments.json: it cannot be written: "):
        trainer_environments.write_choices(of(["train"]))


def test_a_block_that_waits_for_its_environment_has_it_installed_where_it_is_all_that_is_left(
    machine,
):
    waiting = BLOCK | {"name": "jax", "framework": "jax", "where_installed": True}
    for python, waits in (("3.12.1", True), ("3.13.0", True), ("3.14.2", False)):
        machine(python)
        study = made_studies.study(BLOCK, waiting)
        reasons = {run.framework: skipping.skip_reason(run, DEVICES, study) for run in study.runs}
        assert bool(study.where_installed) == bool(reasons["jax"]) == waits
        assert bool(reasons["tensorflow"]) != waits
        assert made_studies.study(waiting).where_installed  # nothing else was asked for


def test_the_plan_says_what_was_chosen_and_keeps_it(machine):
    machine("3.13.0")
    plan = planning.make_plan(made_studies.STUDY)
    assert list(plan.summary_lines)[-1] == (
        "runs that name no environment are of envs/train-latest, since no Python fits envs/train "
        "(results/chosen_environments.json)"
    )
    assert plan.export_environment == "results/environments/train-latest.json"
    assert not trainer_environments.CHOSEN.exists()
    trainer_environments.write_choices(plan.with_tries)
    assert json.loads(trainer_environments.CHOSEN.read_text()) == {"train": "train-latest"}
    machine("3.12.1")
    assert planning.make_plan(made_studies.STUDY).runs.keys() == plan.runs.keys()


@pytest.fixture
def another_user():
    """A folder that all may read; the test goes on as a user who may do no more than others."""
    is_root, known = os.geteuid() == 0, (lacks_python, trainer_environments.has_package)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for function in known:
            function.cache_clear()
        yield Path(folder), lambda: is_root and os.setresuid(65534, 65534, 0)  # nobody
        if is_root:
            os.setresuid(0, 0, 0)
        for function in known:
            function.cache_clear()
        for place in (Path(folder), *Path(folder).glob("home")):
            place.chmod(0o755)


def test_what_belongs_to_somebody_else_is_named_and_left_alone(another_user, monkeypatch):
    folder, become = another_user
    python, home = folder / "envs/train/.venv/bin/python", folder / "home"
    stamp = folder / "results/environments/train.json"
    for place in (python.parent, home, stamp.parent):
        place.mkdir(parents=True)
    (home / "python").write_text("#!/bin/sh\n")
    python.symlink_to(home / "python")
    stamp.write_text("{}")
    mine = folder / "mine"
    mine.mkdir()
    mine.chmod(0o777)
    (mine / "results").symlink_to("../results")
    monkeypatch.chdir(folder)
    planning.check_folders(writes=True)
    assert trainer_environments.is_installed("train")
    home.chmod(0o000 if os.geteuid() else 0o700)
    for place in (folder, folder / "results"):
        place.chmod(0o555 if os.geteuid() else 0o755)
    become()
    reason = skipping.skip_reason(RUN, DEVICES, made_studies.study())
    assert f"the Python of envs/train is {home}/python, which this user may not reach" in reason
    assert not trainer_environments.is_installed("train")
    assert not trainer_environments.has_package("horovod", "train")
    assert planning._missing_environments([RUN]) == set()  # nothing is made again over the other's
    with pytest.raises(Error, match=rf"{folder} is not writable for this user.*dlbench status"):
        planning.check_folders(writes=False)
    monkeypatch.chdir(mine.name)
    planning.check_folders(writes=False)
    refused = rf"{mine}/results \(a link to \.\./results\) is not writable for this user"
    with pytest.raises(Error, match=refused):
        planning.check_folders(writes=True)
