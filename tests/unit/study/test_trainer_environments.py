"""trainer_environments: what environments say of themselves, and which Pythons they can have."""

import dataclasses

import pytest

from dlbench.common.files import sha256
from dlbench.records import staleness
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
LOCKED = [path.parent for path in sorted(REPOSITORY.glob("envs/*/uv.lock"))]


def test_runs_of_the_time_of_python_3_11_alone_stand(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    jax = dataclasses.replace(RUN, framework="jax", environment="jax")
    digests = [staleness.made_from(run)["environment"] for run in (RUN, jax)]
    assert digests == [
        "6a9d12a27f8a1c0370783cb3c0545fc32fcf93e2a051e7272af1742ccd42ee83",
        "d3c90a81d94a9379fd44d53f0f708259ffa5f8d2752eb211ffe684d992e928a2",
    ]


@pytest.mark.parametrize("project", LOCKED, ids=lambda path: path.name)
def test_what_is_said_of_a_lock_file_is_said_of_the_one_that_is_there(project):
    said = trainer_environments.settings(project).get("lock")
    assert said is None or said["sha256"] == sha256(project / "uv.lock")


def test_a_lock_file_counts_by_its_own_digest_unless_it_installs_what_another_did(tmp_path):
    (tmp_path / "uv.lock").write_text("locked")
    own = trainer_environments.lock_digest(tmp_path)
    assert own == sha256(tmp_path / "uv.lock")
    said = f'[tool.dlbench.lock]\nsha256 = "{own}"\ninstalls_as = "another"\n'
    (tmp_path / "pyproject.toml").write_text(said)
    assert trainer_environments.lock_digest(tmp_path) == "another"
    (tmp_path / "uv.lock").write_text("locked anew")
    assert trainer_environments.lock_digest(tmp_path) == sha256(tmp_path / "uv.lock")


def test_a_damaged_description_of_an_environment_is_left_to_uv(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool")
    assert trainer_environments.settings(tmp_path) == {}


@pytest.mark.parametrize(
    ("python", "lacking"),
    [
        ("3.11.7", []),
        ("3.12.1", []),
        ("3.13.0", ["train"]),
        ("3.14.2", ["train", "train-latest"]),
    ],
)
def test_where_the_only_python_is_too_new_for_an_environment_it_says_what_to_install(
    python, lacking, tmp_path, monkeypatch, programs
):
    programs("uv", "exit 2")  # it finds no Python
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("train", "train-latest", "jax", "pytorch"):
        (tmp_path / "envs" / name).mkdir(parents=True)
        (tmp_path / "envs" / name / "pyproject.toml").symlink_to(
            REPOSITORY / "envs" / name / "pyproject.toml"
        )
    trainer_environments.lacks_python.cache_clear()
    said = {
        name: trainer_environments.lacks_python(name, python)
        for name in ("train", "train-latest", "jax", "pytorch")
    }
    assert [name for name, reason in said.items() if reason] == lacking
    if lacking:
        assert said["train"] == (
            "envs/train needs Python >=3.11,<3.13; uv finds none on this machine (the workflow's "
            f"is {python}). Install one, as with `uv python install 3.12`, or give another "
            "environment"
        )
        trainer_environments.trainer_python("train").parent.mkdir(parents=True)
        trainer_environments.trainer_python("train").touch()
        trainer_environments.lacks_python.cache_clear()
        assert trainer_environments.lacks_python("train", python) is None
    programs("uv", "exit 0")  # it finds one
    trainer_environments.lacks_python.cache_clear()
    assert trainer_environments.lacks_python("train-latest", python) is None
    trainer_environments.lacks_python.cache_clear()
