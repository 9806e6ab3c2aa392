"""planning: what is to be done, in which order and by which commands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from dlbench import Error, config, eventlog, parsing, planning, records, site

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


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A workflow folder with the lock file of an environment in which nothing is installed."""
    (tmp_path / "envs" / "train").mkdir(parents=True)
    shutil.copy(site.ENVIRONMENTS / "train" / "uv.lock", tmp_path / "envs" / "train")
    monkeypatch.chdir(tmp_path)
    site._installed.cache_clear()
    yield
    site._installed.cache_clear()


def test_a_skipped_run_needs_nothing_and_its_reason_survives_the_shell(alone):
    block = STUDY["matrix"][0] | {"strategy": ["single", "horovod"]}
    plan = planning.plan(STUDY | {"matrix": [block]})
    assert {run_id for run_id in plan.runs if "-horovod-" in run_id} == set(plan.skipped)
    for run_id, reason in plan.skipped.items():
        assert "--extra horovod" in reason
        words = shlex.split(plan.command(run_id, attempt=1))
        assert f"--skip={reason}" in words[: words.index("--")]
        assert plan.training_inputs(type("Wildcards", (), {"run_id": run_id})) == {}


def test_a_config_with_mistakes_ends_the_program_with_them():
    with pytest.raises(SystemExit) as error:
        planning.plan(STUDY | {"repeats": 0, "seeed": 1})
    assert str(error.value).startswith("The config cannot be used:\n")
    assert "unknown key 'seeed' (did you mean 'seed'?)" in str(error.value)
    assert "repeats: expected at least 1, found 0" in str(error.value)


def test_an_unknown_run_is_named_with_the_nearest(plan):
    known = next(iter(plan.runs))
    with pytest.raises(Error) as error:
        plan.spec(known[:-1])
    assert "no run" in str(error.value)
    assert "did you mean" in str(error.value)


def test_flags_of_fetching_survive_the_shell(alone):
    folder = "/my data/it's here; rm -rf $HOME"
    data = STUDY["data"] | {"manual_dir": folder, "offline": True, "terms_accepted": ["imagenet"]}
    plan = planning.plan(STUDY | {"data": data})
    assert shlex.split(plan.fetching("digits")) == [f"--manual-dir={folder}", "--offline"]
    assert shlex.split(plan.fetching("imagenet"))[-1] == "--terms-accepted"
    assert planning.plan(STUDY).fetching("digits") == ""


def finish(run, made_from):
    """The log of a run that was trained."""
    log = eventlog.EventLog(records.folder(run.id) / "train.jsonl")
    log.write("launch", t_utc=eventlog.utc_now(), made_from=made_from)
    log.start(devices=["CPU:0"], total_steps=1)
    log.step(1, 0.5, 0.5, 2.0, 0.01, False, 1)
    log.write("run_end", t_s=0.5, t_utc=eventlog.utc_now(), status="ok", message="",
              weights_sha256=["0"])  # fmt: skip
    log.close()
    return records.folder(run.id) / "train.jsonl"


def test_finished_runs_are_left_and_the_others_sorted_by_what_they_need(plan):
    current, unread, stale, *missing = plan.study.runs
    for run in (current, unread):
        finish(run, records.made_from(run))
    parsing.parse(current, records.folder(current.id) / "train.jsonl",
                  records.folder(current.id) / "run.json")  # fmt: skip
    finish(stale, {"code": "another"})
    again = planning.plan(STUDY)
    states = {run_id: state.value for run_id, (state, _) in again.pending.items()}
    assert states == {
        unread.id: "unread",
        stale.id: "stale",
        **{run.id: "missing" for run in missing},
    }
    assert again.forced == {
        f"results/runs/{unread.id}/run.json",
        f"results/runs/{stale.id}/run.json",
        f"results/runs/{stale.id}/train.jsonl",
    }
    assert [run.id for run in again.study.runs if re.fullmatch(again.unread, run.id)] == [unread.id]
    assert again.training_inputs(type("Wildcards", (), {"run_id": current.id})) == {}
    first, *_ = [w for w in shlex.split(again.command(unread.id, 1)) if "--position" in w]
    assert first == "--position=2/8"


def test_where_nothing_is_unread_or_adopted_the_patterns_match_no_run(plan):
    for run_id in (*plan.runs, ""):
        assert not re.fullmatch(plan.unread, run_id)
        assert not re.fullmatch(plan.adoptable, run_id)


def test_the_order_of_priorities_is_another_one_with_another_seed(plan):
    other = planning.plan(STUDY | {"seed": 2})
    assert {run_id: plan.priority(run_id) for run_id in plan.runs} != {
        run_id: other.priority(run_id) for run_id in other.runs
    }
