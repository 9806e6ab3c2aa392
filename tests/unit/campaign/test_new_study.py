"""The first study for a machine: what it combines, and that the workflow takes it."""

import re
import shutil

import pytest
import yaml

from dlbench import Error
from dlbench.campaign import new_study
from dlbench.campaign.new_study import Choice
from dlbench.study import trainer_environments
from support.machines.paths import REPOSITORY
from support.studies.site_facts import SITE

CPUS = Choice("mine", ("tensorflow",), "lenet5", "digits", "cpu", (1, 2))
GPUS = Choice("mine", ("tensorflow", "jax", "pytorch"), "resnet50", "synthetic", "gpu", (1, 2, 4))
VENV = shutil.ignore_patterns(".venv")
GPU_SITE = {"device": "gpu", "devices_per_node": 4, "cores_per_node": 16, "nodes": 2}


@pytest.fixture(autouse=True)
def workflow(place, pythons):
    shutil.copy(REPOSITORY / "config.yaml", place)


def content(choice):
    return yaml.safe_load(new_study.yaml_text(choice, "start"))


def settings(**site):
    return new_study.settings(yaml.safe_dump({"site": SITE | site}))


@pytest.mark.parametrize(
    ("choice", "site", "runs"),
    [
        (CPUS, {}, 18),
        (Choice("1", ("pytorch",), "cnn12", "synthetic", "cpu", (1,)), {}, 9),
        (GPUS, GPU_SITE, 54),
        (Choice("on: nodes", GPUS.frameworks, "resnet50", "synthetic", "gpu", (1, 2, 4), (1, 2)),
         GPU_SITE, 72),
    ],
    ids=["cores", "one core", "GPUs", "nodes"],
)  # fmt: skip
def test_the_workflow_takes_every_such_study(choice, site, runs):
    # Comparisons of a config around are not taken over.
    around = settings(**site) | {"compare": [{"field": "framework", "base": "jax"}]}
    assert new_study.check(new_study.yaml_text(choice, "start"), around) == (runs, [])
    assert content(choice)["study"] == choice.name


def test_frameworks_have_their_strategies_and_are_compared():
    written = content(GPUS)
    speedup = written["matrix"][0]
    others = {entry["framework"]: entry["strategy"] for entry in speedup["include"]}
    assert (speedup["framework"], speedup["strategy"]) == ("tensorflow", "mirrored")
    assert (speedup["batch_per_device"], speedup["devices_per_node"]) == (32, [1, 2, 4])
    assert others == {"jax": "sharded", "pytorch": "ddp"}
    assert written["compare"] == [{"field": "framework", "base": "tensorflow"}]


def test_one_device_has_no_speedup_and_large_models_get_small_batches_and_few_steps_on_cores():
    written = content(Choice("large", ("pytorch",), "resnet50", "synthetic", "cpu", (1,)))
    (block,) = written["matrix"]
    assert (block["batch_per_device"], block["steps"]) == ([1, 2, 4], 5)
    assert "scaling" not in written["figures"] and "speedup" not in block["name"]


def test_digits_are_for_models_of_their_shape():
    assert new_study.dataset_for("lenet5", "pytorch") == "digits"
    assert new_study.dataset_for("gpt_tiny", "tensorflow") == "synthetic"
    with pytest.raises(Error, match=r"jax has no model 'lenet' \(did you mean 'lenet5'\?\)"):
        new_study.dataset_for("lenet", "jax")


def test_gpus_get_the_environment_that_is_made_for_them():
    assert new_study.environment("tensorflow", "gpu") == "train-cuda"
    assert new_study.environment("pytorch", "gpu") is None  # its own has both builds
    assert new_study.environment("tensorflow", "cpu") is None


def test_what_the_site_cannot_do_is_refused_before_anything_is_written():
    text = new_study.yaml_text(Choice("a", ("jax",), "lenet5", "nothing", "cpu", (1,)), "start")
    with pytest.raises(Error, match=r"nothing.*there are:"):
        new_study.check(text, settings())
    text = new_study.yaml_text(Choice("b", ("jax",), "gpt_tiny", "digits", "cpu", (1,)), "start")
    with pytest.raises(Error, match="gpt_tiny learns language and needs data of the kind text"):
        new_study.check(text, settings())


def test_a_site_that_can_do_no_run_is_refused(place):
    (place / "envs").unlink()
    shutil.copytree(REPOSITORY / "envs/jax", place / "envs/jax", ignore=VENV)
    project = place / "envs/jax/pyproject.toml"
    project.write_text(
        re.sub("requires-python.*", 'requires-python = ">=4.0"', project.read_text())
    )
    (place / "bin/uv").write_text("#!/bin/sh\nexit 1\n")
    (place / "bin/uv").chmod(0o755)
    trainer_environments.lacks_python.cache_clear()
    text = new_study.yaml_text(Choice("a", ("jax",), "lenet5", "digits", "cpu", (1,)), "start")
    with pytest.raises(Error, match=r"can do none of the runs: envs/jax needs Python >=4\.0"):
        new_study.check(text, settings())
    trainer_environments.lacks_python.cache_clear()


def test_frameworks_that_are_installed_are_taken_and_the_first_where_none_is(place):
    (place / "envs").unlink()
    shutil.copytree(REPOSITORY / "envs", place / "envs", ignore=VENV)
    assert new_study.usable_frameworks("cpu") == ["tensorflow"]
    for name in ("jax", "pytorch"):
        python = place / "envs" / name / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
    assert new_study.usable_frameworks("cpu") == ["jax", "pytorch"]
    assert new_study.usable_frameworks("gpu") == ["pytorch"]  # jax has another for GPUs


def test_devices_are_powers_of_two_up_to_eight_and_all():
    assert new_study.devices_of(SITE | {"devices_per_node": 6}) == ("cpu", (1, 2, 4, 6))
    assert new_study.devices_of(SITE | GPU_SITE | {"devices_per_node": 16}) == ("gpu", (1, 2, 4, 8))
