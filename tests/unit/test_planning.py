"""planning: what is to be done, in which order and by which commands."""

import shlex
from pathlib import Path

import pytest

from dlbench import config, planning, site

STUDY = config.read(Path(__file__).parents[2] / "config.yaml") | {
    "study": "test",
    "seed": 1,
    "repeats": 2,
    "time_limit_s": 60,
    "site": {"name": "here", "device": "cpu", "devices_per_node": 2},
    "matrix": [
        {
            "name": "block",
            "model": "lenet5",
            "dataset": ["synthetic", "digits"],
            "batch_per_device": [8, 16],
            "steps": 5,
        }
    ],
    "figures": [],
}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(site.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    return planning.plan(STUDY)


def test_a_study_of_which_nothing_remains_is_refused_with_the_reasons(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(site.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    block = STUDY["matrix"][0] | {"strategy": "mirrored", "devices_per_node": 4}
    with pytest.raises(SystemExit) as error:
        planning.plan(STUDY | {"matrix": [block]})
    assert "nothing remains" in str(error.value)
    assert "needs 4 cpu devices per node; this site has 2" in str(error.value)


def test_priorities_follow_the_seeded_order(plan):
    priorities = [plan.priority(run.id) for run in plan.study.runs]
    assert priorities == sorted(priorities, reverse=True)
    assert min(priorities) == 1


def test_the_command_of_a_run_survives_the_shell(plan):
    (run_id,) = (id for id in plan.runs if id.startswith("lenet5-digits-b16") and "-r2-" in id)
    words = shlex.split(plan.command(run_id, attempt=1))
    separator = words.index("--")
    flags, trainer = words[:separator], words[separator + 1 :]
    assert '--spec={"batch_per_device": 16, "dataset": "digits"' in flags[0]
    assert "--attempt=1" in flags
    assert trainer[:2] == ["envs/train/.venv/bin/python", "workflow_scripts/train.py"]
    assert trainer[trainer.index("--repeat") + 1] == "2"
    assert trainer[trainer.index("--data") + 1] == "results/data/digits"
    assert trainer[trainer.index("--log") + 1] == f"results/runs/{run_id}/train.jsonl"


def test_runs_are_counted_in_the_order_in_which_they_are_done(plan):
    positions = [
        word for run in plan.study.runs for word in shlex.split(plan.command(run.id, 1))
        if word.startswith("--position=")
    ]  # fmt: skip
    assert positions == [f"--position={number}/8" for number in range(1, 9)]


def test_data_is_needed_by_the_runs_that_read_it_only(plan):
    for run_id in plan.runs:
        inputs = plan.training_inputs(type("Wildcards", (), {"run_id": run_id}))
        assert ("data" in inputs) == ("digits" in run_id)
        assert inputs["environment"] == "results/environments/train.json"
    assert plan.datasets == ["digits"]
