"""The configs of programs/: each can be planned, and its commands can be filled in."""

import re

import pytest
import yaml

from dlbench.machine import redaction
from dlbench.study import config, other_trainers, trainer_environments
from dlbench.trainer import engine, updates
from support.machines.paths import REPOSITORY

PROGRAMS = REPOSITORY / "programs"
ALL = sorted(path.parent.name for path in PROGRAMS.glob("*/config.yaml"))
# The axes that a buyer of a machine sweeps, of the programs with recipes for large models.
DIVIDED = {"tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"}
RECIPES = ("megatron", "torchtitan")
GPT_TINY = {"layers": 4, "width": 128, "heads": 4}  # trainer/keras/models/transformers.py


@pytest.fixture
def planned(monkeypatch):
    """The study of a program as the workflow reads it, without a site's own facts."""
    monkeypatch.chdir(REPOSITORY)

    def read(name):
        return config.study(config.read("config.yaml", f"programs/{name}/config.yaml"))

    return read


def varied(study):
    """The parameters of a study that have more than one value."""
    values = {}
    for run in study.runs:
        for name, value in other_trainers.parameters.typed(run.trainer_parameters).items():
            values.setdefault(name, set()).add(value)
    return {name for name, found in values.items() if len(found) > 1}


@pytest.mark.parametrize("name", ALL)
def test_the_runs_of_a_program_are_planned_and_its_commands_filled_in(name, planned):
    study = planned(name)
    assert study.name == name and study.runs
    first = [run for run in study.runs if run.repeat == 1]
    commands = [other_trainers.command(run, "PYTHON", "", "FOLDER") for run in first]
    for command in commands:
        assert not [word for word in command if re.search(r"\{\w+\}", word)]
        assert redaction.redact_command(command) == command  # nothing in it looks like a secret
    # Every axis reaches the program, by its command or by what starts it.
    started = {(run.devices, *words) for run, words in zip(first, commands, strict=True)}
    assert len(started) == len(first)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_divide_models_in_all_ways_and_vary_recomputation_and_formats(name, planned):
    study = planned(name)
    assert varied(study) >= DIVIDED | {"checkpointing"}
    assert varied(study) & {"recipe", "number_format"}  # bfloat16, or eight bits
    assert len({run.model for run in study.runs}) == 2  # a dense model, and one of experts
    for run in study.runs:
        own = other_trainers.parameters.typed(run.trainer_parameters)
        divided = own["tensor_parallel"] * own["pipeline_parallel"] * own["context_parallel"]
        assert run.devices % divided == 0


def test_the_study_beside_ours_starts_the_same_programs_on_the_model_that_we_train(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    for further in ((), ("studies/your_program/smoke.yaml",)):
        files = ("config.yaml", "studies/your_program/config.yaml", *further)
        study = config.study(config.read(*files))
        assert {run.trainer for run in study.runs} == {"dlbench", "huggingface", "lightning"}
        assert {run.model for run in study.runs} == {"gpt_tiny"}
        for run in filter(lambda run: run.is_external, study.runs):
            page = (PROGRAMS / run.trainer / "config.yaml").read_text(encoding="utf-8")
            assert other_trainers.trainer(run) == yaml.safe_load(page)["trainers"][run.trainer]
            own = other_trainers.parameters.typed(run.trainer_parameters)
            assert own.items() >= GPT_TINY.items()
            assert trainer_environments.folder(run.environment).is_dir()
        ours = [run for run in study.runs if not run.is_external]
        assert not [run for run in ours if updates.unsupported(run, engine.strategy_of(run))]
        assert len({run.sequence_length for run in study.runs}) == 1
