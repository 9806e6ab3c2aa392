"""planning: what is to be done, in which order and by which commands."""

import dataclasses
import re
import shlex
import shutil
import sys
import types
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.common import own_code
from dlbench.log import event_log
from dlbench.machine import redaction
from dlbench.plan import planning, run_command
from dlbench.records import judgement, parse_run, run_record
from dlbench.records.judgement import State
from dlbench.study import config, trainer_environments
from dlbench.trainer.reading import manifest
from support.machines.paths import REPOSITORY
from support.studies.planned_runs import STUDY, finish, finish_and_read
from support.studies.site_facts import SITE


def test_a_study_of_which_nothing_remains_is_refused_with_the_reasons(project):
    block = STUDY["matrix"][0] | {"strategy": "mirrored", "devices_per_node": 4}
    with pytest.raises(Error) as error:
        planning.make_plan(STUDY | {"matrix": [block]})
    assert "nothing remains" in str(error.value)
    assert "needs 4 cpu devices per node; this site has 2" in str(error.value)


def test_a_study_whose_results_are_here_is_planned_though_no_run_can_be_done(plan):
    block = STUDY["matrix"][0] | {"strategy": "mirrored", "devices_per_node": [1, 4]}
    for run in config.study(STUDY | {"matrix": [block]}).runs:
        if run.devices == 4:
            finish_and_read(run, judgement.made_from(run))
    block["devices_per_node"] = 4
    there = planning.make_plan(STUDY | {"matrix": [block]})
    assert len(there.skipped) == len(there.runs) > 0 and there.pending == {}


def test_a_study_of_runs_that_pods_start_is_planned_though_none_is_done_here(plan):
    block = STUDY["matrix"][0] | {"strategy": "multiworker", "nodes": 2, "launcher": "kubernetes"}
    pods = planning.make_plan(STUDY | {"site": SITE | {"nodes": 2}, "matrix": [block]})
    assert len(pods.skipped) == len(pods.runs) > 0 and pods.to_train == []


def test_what_failed_before_its_first_step_is_trained_by_the_next_start(plan):
    run = plan.to_train[0]
    for fields, todo in (({}, []), ({"before_first_step": True}, [run.id])):
        path = run_record.folder(run.id) / "train.jsonl"
        path.unlink(missing_ok=True)
        log = event_log.EventLog(path)
        log.write("launch", t_utc=event_log.utc_now(), made_from=judgement.made_from(run))
        end = {"status": "failed", "message": "nobody knows n1", **fields}
        log.write("run_end", t_utc=event_log.utc_now(), **end)
        log.close()
        parse_run.parse(run, path, path.with_name("run.json"))
        again = planning.make_plan(STUDY)
        assert [one.id for one in again.to_train if one.id == run.id] == todo
    state, reason = again.pending[run.id]
    assert state is State.STALE
    assert reason == "failed before its first step, so measured nothing: nobody knows n1"


def test_the_jobs_of_a_plan_ask_the_scheduler_for_what_its_runs_need(plan, program, monkeypatch):
    program("sinfo", "cpu*|up|1:00:00|3|8|8000|(null)|idle")
    program("squeue")
    monkeypatch.setattr(sys, "executable", "/a clone/.venv/bin/python")
    cluster = planning.make_plan(STUDY | {"site": SITE | {"cores_per_node": 8}})
    with pytest.raises(Error, match=r"/a clone/.* has a space, so that no job would start"):
        jobs.Submitting(cluster).check_cluster("slurm", lambda rule, name: None, {})
    jobs.Submitting(cluster).check_cluster(None, lambda rule, name: None, {})
    monkeypatch.setattr(sys, "executable", "/clone/.venv/bin/python")
    with pytest.raises(Error, match=r"site\.cores_per_node: auto counts what this machine has"):
        jobs.Submitting(plan).check_cluster("slurm", lambda rule, name: None, {})
    submitting = jobs.Submitting(cluster)
    submitting.check_cluster("slurm", lambda rule, name: None, {})
    first = types.SimpleNamespace(run_id=cluster.to_train[0].id)  # as Snakemake's wildcards
    asked = {name: resource(first, 1) for name, resource in submitting.resources.items()}
    assert asked["runtime"] == 1 + 5 and asked["exclusive"] == 1
    assert asked["nodes"] == 1 and asked["mem_mb"] == 5000
    again = submitting.resources["mem_mb"](first, 2)
    assert again == 8000  # of the node, less than twice as much for the device
    with pytest.raises(Error, match="the scheduler has no partition"):
        submitting.check_cluster("slurm", lambda *of: {"slurm_partition": "gpu"}.get(of[1]), {})


def test_priorities_follow_the_order_which_is_another_one_with_another_seed(plan):
    priorities = [plan.priority(run.id) for run in plan.study.runs]
    assert priorities == list(range(len(plan.runs), 0, -1))
    other = planning.make_plan(STUDY | {"seed": 2})
    assert [other.priority(run.id) for run in plan.study.runs] != priorities


def test_the_command_of_a_run_survives_the_shell(plan):
    (run_id,) = (id for id in plan.runs if id.startswith("lenet5-digits-b16") and "-r2-" in id)
    arguments = run_command.start_run_arguments(plan, run_id)
    separator = arguments.index("--")
    flags = arguments[:separator]
    trainer = plan.runs[run_id].command(arguments[separator + 1 :])
    assert '--spec={"batch_per_device": 16, "dataset": "digits"' in flags[0]
    assert trainer[:2] == ["envs/train/.venv/bin/python", "workflow_scripts/train.py"]
    assert trainer[trainer.index("--repeat") + 1] == "2"
    assert trainer[trainer.index("--data") + 1] == "results/data/digits"
    assert trainer[trainer.index("--log") + 1] == f"results/runs/{run_id}/train.jsonl"


def test_what_others_may_use_is_told_to_each_run_and_changes_none(plan):
    done = plan.study.runs[0]
    finish_and_read(done, judgement.made_from(done))
    judged = planning.make_plan(STUDY | {"others_share": 0.1, "wait_for_quiet_s": 30})
    assert done.id not in judged.pending and judged.runs.keys() == plan.runs.keys()
    arguments = run_command.start_run_arguments(judged, done.id)
    assert "--others-share=0.1" in arguments and "--wait-for-quiet-s=30" in arguments
    never = run_command.start_run_arguments(plan, done.id)
    assert not any(word.startswith(("--others-share", "--power-meter")) for word in never)


def test_no_secret_of_a_command_is_in_what_rules_keep(plan):
    site = STUDY["site"] | {"power_meter": "ipmitool -P pl4nted sdr"}
    metered = planning.make_plan(STUDY | {"site": site})
    assert metered.runs.keys() == plan.runs.keys()
    run_id = plan.study.runs[0].id
    arguments = run_command.start_run_arguments(metered, run_id)
    assert "--power-meter=ipmitool -P (hidden-0) sdr" in arguments
    assert redaction.restored(arguments, metered.study.commands.variables) == (
        run_command.start_run_arguments(metered, run_id, with_secrets=True)
    )
    assert "pl4nted" not in Path(metered.config_file()).read_text()
    other = planning.make_plan(STUDY | {"site": site | {"power_meter": "ipmitool -P other sdr"}})
    assert other.config_file() == metered.config_file()


def test_runs_are_counted_in_the_order_in_which_they_are_done(plan):
    for number, run in enumerate(plan.study.runs, 1):
        assert f"--position={number}/8" in run_command.start_run_arguments(plan, run.id)


def test_data_is_needed_by_the_runs_that_read_it_only(plan):
    for run_id in plan.runs:
        data = ["results/data/digits/manifest.json"] if "digits" in run_id else []
        assert plan.training_inputs(run_id) == ["results/environments/train.json", *data]
    assert plan.datasets == ["digits"]


def test_a_skipped_run_needs_nothing_and_its_reason_survives_the_shell(alone):
    block = STUDY["matrix"][0] | {"strategy": ["single", "horovod"]}
    plan = planning.make_plan(STUDY | {"matrix": [block]})
    assert {run_id for run_id in plan.runs if "-horovod-" in run_id} == set(plan.skipped)
    positions = [(plan.position(run.id), plan.runs_after(run.id)) for run in plan.to_train]
    assert positions == [(f"{number}/8", 8 - number) for number in range(1, 9)]
    for run_id, reason in plan.skipped.items():
        assert "--extra horovod" in reason
        arguments = run_command.start_run_arguments(plan, run_id)
        assert f"--skip={reason}" in arguments[: arguments.index("--")]
        assert plan.training_inputs(run_id) == []


def test_runs_of_a_block_that_says_where_installed_wait_for_their_environment_or_are_skipped(alone):
    (Path("envs") / "jax").mkdir()
    Path("envs/jax/uv.lock").touch()
    named = {5: {}, 6: {"where_installed": False}, 7: {"where_installed": True}}
    blocks = [
        STUDY["matrix"][0] | {"name": str(steps), "framework": "jax", "steps": steps, **extra}
        for steps, extra in named.items()
    ]
    study = STUDY | {"matrix": blocks}
    plan = planning.make_plan(study)
    waiting = {run_id for run_id, run in plan.runs.items() if run.steps == 7}
    assert set(plan.skipped) == waiting
    command = "run dlbench environment envs/jax"
    assert {reason.endswith(command) for reason in plan.skipped.values()} == {True}
    python = trainer_environments.trainer_python("jax")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert not planning.make_plan(study).skipped


def test_flags_of_fetching_survive_the_shell(alone):
    folder = "my data; it's here && rm -rf $HOME"
    Path(folder).mkdir()
    data = STUDY["data"] | {"manual_dir": folder, "offline": True, "terms_accepted": ["imagenet"]}
    plan = planning.make_plan(STUDY | {"data": data})
    assert shlex.split(plan.fetch_flags("digits")) == [f"--manual-dir={folder}", "--offline"]
    assert shlex.split(plan.fetch_flags("imagenet"))[-1] == "--terms-accepted"
    assert planning.make_plan(STUDY).fetch_flags("digits") == ""


def test_finished_runs_are_left_and_the_others_sorted_by_what_they_need(plan):
    current, unread, stale, *missing = plan.study.runs
    finish_and_read(current, judgement.made_from(current))
    finish(unread, judgement.made_from(unread))
    finish(stale, {"code": "another"})
    again = planning.make_plan(STUDY)
    states = {run_id: state.value for run_id, (state, _) in again.pending.items()}
    others = {run.id: "missing" for run in missing}
    assert states == {unread.id: "unread", stale.id: "stale"} | others
    assert again.remade == set()
    assert [id for id in again.runs if re.fullmatch(again.untrained_pattern, id)] == [unread.id]
    assert again.training_inputs(unread.id) == again.session_files.file
    assert again.inputs_of_trained(current.id) == again.training_inputs(current.id)
    assert "--position=2/8" in run_command.start_run_arguments(again, unread.id)


def test_runs_that_the_command_line_asks_for_count_as_runs_to_be_trained(plan):
    for run in plan.study.runs:
        finish(run, judgement.made_from(run))
    done = planning.make_plan(STUDY)
    first, second, *_ = done.study.runs
    done.pending.clear()
    done.train_again([second.id, first.id])
    assert done.to_train == [first, second]
    assert list(done.summary_lines) == ["2 runs to train again: the command line asks for it"]
    assert [done.position(run.id) for run in done.to_train] == ["7/8", "8/8"]
    assert [done.runs_after(run.id) for run in done.to_train] == [1, 0]


def test_it_says_how_many_runs_are_to_be_done_and_why(plan):
    assert list(plan.summary_lines) == ["8 runs to train: not trained yet"]
    plan.record_code_digests()
    data = judgement.data_code("digits")
    kept = {path.name.partition(".")[0] for path in own_code.SAVED_DIGESTS.iterdir()}
    codes = {judgement.made_from(run)["code"] for run in plan.runs.values()}
    assert kept == {own_code.digest(data)} | codes
    first, second, *_ = plan.study.runs
    finish(first, judgement.made_from(first))
    finish(second, judgement.made_from(second) | {"environment": "another"})
    assert list(planning.make_plan(STUDY).summary_lines) == [
        "6 runs to train: not trained yet",
        "1 run to read again from the log: run.json: there is no record",
        "1 run to train again: environment changed since it was trained: envs/train/uv.lock",
    ]
    block = STUDY["matrix"][0] | {"strategy": ["single", "mirrored"], "devices_per_node": [1, 4]}
    block["exclude"] = [{"strategy": "single", "devices_per_node": 4, "reason": "one device"}]
    assert (
        "8 runs to skip: needs 4 cpu devices per node; this site has 2"
        in planning.make_plan(STUDY | {"matrix": [block]}).summary_lines
    )


def test_an_environment_that_was_copied_without_its_python_is_made_again(here):
    python = trainer_environments.trainer_python("train")
    listed = Path("results/environments/train.json")
    for path in (python, listed):
        path.parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / "envs/train/uv.lock", "envs/train")
    assert planning.make_plan(STUDY).remade == set()
    listed.touch()
    assert planning.make_plan(STUDY).remade == {str(listed)}
    python.symlink_to("/a/python/of/another/machine")
    assert planning.make_plan(STUDY).remade == {str(listed)}
    python.unlink()
    python.symlink_to(sys.executable)
    assert planning.make_plan(STUDY).remade == set()


def test_the_config_travels_as_a_file_that_is_another_one_when_the_config_changes(plan):
    path = plan.config_file(write=False)
    assert not Path(path).exists()
    assert plan.config_file() == path
    assert config.read_merged_config(path) == STUDY
    assert planning.make_plan(STUDY | {"seed": 2}).config_file(write=False) != path


def test_what_this_machine_cannot_do_is_recorded_without_training_and_read_if_it_has_a_log(plan):
    block = STUDY["matrix"][0] | {"strategy": "mirrored", "devices_per_node": [2, 4]}
    mixed = planning.make_plan(STUDY | {"matrix": [block]})
    to_skip = {run_id for run_id in mixed.runs if re.fullmatch(mixed.untrained_pattern, run_id)}
    assert to_skip == set(mixed.skipped) and 0 < len(to_skip) < len(mixed.runs)
    unread = dataclasses.replace(mixed, pending=dict.fromkeys(mixed.pending, (State.UNREAD, "")))
    assert all(map(unread.is_unread, unread.runs)) and not any(map(mixed.is_unread, to_skip))


def test_a_pattern_of_many_runs_matches_them_alone_and_is_not_a_list_of_all_to_try(plan):
    ids = [*(f"lenet5-b{batch}-r1" for batch in range(2000)), "a.b", "axb", "a", "a.bc"]
    unread = dict.fromkeys(ids[::2], (State.UNREAD, ""))
    pattern = dataclasses.replace(plan, pending=unread).untrained_pattern
    assert [run_id for run_id in ids if re.fullmatch(pattern, run_id)] == ids[::2]
    assert len(pattern) < sum(map(len, unread))
    for run_id in (*plan.runs, ""):  # where nothing is unread or adopted
        assert not re.fullmatch(plan.untrained_pattern, run_id)
        assert not re.fullmatch(plan.adoptable_pattern, run_id)


@pytest.mark.parametrize(
    ("dataset", "model", "data"),
    [
        ("text", "gpt_tiny", {"text": {"path": "own"}}),
        ("photos", "cnn12", {"images": {"photos": {"path": "own"}}}),
    ],
)
def test_what_a_user_changed_is_converted_again(plan, dataset, model, data):
    names = [f"{label}/{number}" for label in "ab" for number in "12"]
    files = [Path(f"own/{name}.{end}") for name in names for end in ("jpg", "txt")]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("what it was " * 2000)
    block = STUDY["matrix"][0] | {"dataset": dataset, "model": model}
    settings = STUDY | {"matrix": [block], "data": STUDY["data"] | data}
    converted = Path("results/data", dataset, "manifest.json")
    shards = {"records": 1, "shards": [{"file": "t", "records": 1, "bytes": 1, "sha256": None}]}
    reader = {"encoding": "jpeg", "classes": 2}
    digest = planning.make_plan(settings).adopted[dataset].digest
    content = {"dataset": dataset, "kind": "image", "reader": reader, "splits": {"train": shards}}
    converted.parent.mkdir(parents=True, exist_ok=True)
    manifest.write(converted, content | {"code_sha256": digest})
    assert planning.make_plan(settings).remade == set()
    for path in files:
        path.write_text("another " * 3000)
    assert planning.make_plan(settings).remade == {str(converted)}
