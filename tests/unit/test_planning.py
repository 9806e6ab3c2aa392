"""planning: what is to be done, in which order and by which commands."""

import dataclasses
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from image_files import Blobs, tar
from site_facts import SITE

from dlbench import (
    Error,
    config,
    eventlog,
    image_sources,
    images,
    parsing,
    planning,
    records,
    site,
    submitting,
)

STUDY = config.read(Path(__file__).parents[2] / "config.yaml") | {
    "study": "test",
    "seed": 1,
    "repeats": 2,
    "time_limit_s": 60,
    "site": SITE,
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


def test_a_study_of_runs_that_pods_start_is_planned_though_none_is_done_here(plan):
    block = STUDY["matrix"][0] | {"strategy": "multiworker", "nodes": 2, "launcher": "kubernetes"}
    pods = planning.plan(STUDY | {"site": SITE | {"nodes": 2}, "matrix": [block]})
    assert len(pods.skipped) == len(pods.runs) > 0 and pods.to_train == []


def test_the_jobs_of_a_plan_ask_the_scheduler_for_what_its_runs_need(plan, program):
    program("sinfo", "cpu*|up|1:00:00|3|8|8000|(null)")
    program("squeue")
    with pytest.raises(
        SystemExit, match=r"site\.cores_per_node: auto counts what this machine has"
    ):
        submitting.Submitting(plan).to_cluster("slurm", lambda rule, name: None)
    cluster = planning.plan(STUDY | {"site": SITE | {"cores_per_node": 8}})
    jobs = submitting.Submitting(cluster)
    jobs.to_cluster("slurm", lambda rule, name: None)
    asked = {name: resource(_Wildcards(cluster.to_train[0].id), 1)
             for name, resource in jobs.resources.items()}  # fmt: skip
    assert asked["runtime"] == 1 + 5 and asked["slurm_extra"] == "--exclusive"
    assert asked["mpi"] is None and asked["nodes"] == 1 and asked["mem_mb"] == 5000
    again = jobs.resources["mem_mb"](_Wildcards(cluster.to_train[0].id), 2)
    assert again == 8000  # of the node, less than twice as much for the device
    with pytest.raises(SystemExit, match="Nothing was submitted:\nthe scheduler has no partition"):
        jobs.to_cluster("slurm", lambda rule, name: "gpu" if name == "slurm_partition" else None)


def test_what_a_killed_workflow_left_in_the_queue_is_cancelled_unless_one_is_at_work(
    plan, program, tmp_path, capsys, monkeypatch
):
    program("sinfo", "cpu*|up|1:00:00|3|8|8000|(null)")
    left = tmp_path / "left"
    left.write_text(f"7|{tmp_path}|rule_train_wildcards_x\n8|/elsewhere|rule_x\n9|{tmp_path}|\n")
    program("squeue", script=f"#!/bin/sh\ncat {left}\n")
    script = f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled; sed -i /^7/d {left}\n'
    program("scancel", script=script)
    jobs = submitting.Submitting(planning.plan(STUDY | {"site": SITE | {"cores_per_node": 8}}))
    locks = tmp_path / ".snakemake/locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").touch()
    jobs.to_cluster("slurm", lambda rule, name: None)
    assert not (tmp_path / "cancelled").exists()
    (locks / "0.output.lock").unlink()
    started = []
    monkeypatch.setattr(submitting.os, "execv", lambda *words: started.append(words))
    jobs.to_cluster("slurm", lambda rule, name: None)
    assert started[0][1][1:3] == ["-m", "snakemake"]
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert "cancelled jobs that an earlier start left behind: 7" in capsys.readouterr().err


class _Wildcards:
    def __init__(self, run_id):
        self.run_id = run_id


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
    assert "repeats: expected a number of at least 1, or target_interval" in str(error.value)


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


# In containers.

PROGRAMS = ("apptainer", "podman", "udocker", "ch-run")


@pytest.fixture
def contained(tmp_path, monkeypatch):
    """A function that plans a study in containers, on a machine with some of the programs."""
    (tmp_path / "envs").symlink_to(site.ENVIRONMENTS.resolve())
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)

    def make(settings=None, there=PROGRAMS, **changes):
        for name in PROGRAMS:
            program = tmp_path / "bin" / name
            program.unlink(missing_ok=True)
            if name in there:
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
        records._image.cache_clear()
        block = {"name": "block", "model": "lenet5", "dataset": "synthetic", "steps": 5}
        block = block | {"batch_per_device": 8, "repeats": 1} | changes
        return planning.plan(STUDY | {"matrix": [block], "images": settings or {}})

    yield make
    records._image.cache_clear()


def by_runtime(plan):
    return {run.runtime: run for run in plan.study.runs}


def test_all_environments_and_images_in_all_forms_are_listed_once(contained):
    plan = contained(
        runtime=["bare", "apptainer", "podman", "udocker"],
        batch_per_device=[8, 16],
    )
    assert plan.environments == [
        "results/environments/train.json",
        "results/images/train/apptainer.json",
        "results/images/train/podman.json",
        "results/images/train/udocker-P1.json",
    ]
    runs = by_runtime(plan)
    for runtime, form in (("bare", None), ("podman", "podman"), ("udocker", "udocker-P1")):
        wildcards = type("Wildcards", (), {"run_id": runs[runtime].id})
        expected = f"results/images/train/{form}.json" if form else plan.environments[0]
        assert plan.training_inputs(wildcards) == {"environment": expected}


def test_execmodes_are_forms_of_their_own_and_starts_are_not(contained):
    modes = [{"execmode": mode} for mode in ("P1", "P2", "S1")]
    assert contained(runtime="udocker", runtime_options=modes).environments == [
        f"results/images/train/udocker-{mode}.json" for mode in ("P1", "P2", "S1")
    ]
    starts = [{"start": start} for start in ("auto", "command")]
    plan = contained(runtime="apptainer", runtime_options=starts)
    assert plan.environments == ["results/images/train/apptainer.json"]


def test_flags_that_prepare_a_form_survive_the_shell(contained):
    settings = {"train": {"source": "docker://x", "python": "/opt/my python/bin/python"}}
    plan = contained(settings, runtime="udocker", runtime_options={"execmode": "P2"})
    assert shlex.split(plan.preparing("train", "udocker-P2")) == [
        "--runtime=udocker", '--options={"execmode": "P2"}',
        "--python=/opt/my python/bin/python", "--device=cpu",
    ]  # fmt: skip
    assert json.loads(plan.image("train")) == settings["train"]
    assert plan.image("other") == "{}"
    with pytest.raises(Error, match="no run of this study takes an image in the form 'udocker-S1'"):
        plan.preparing("train", "udocker-S1")


def test_a_run_in_a_container_is_told_its_form_and_binds(contained):
    binds = ["/my data:/in put:ro", "/scratch"]
    plan = contained({"train": {"source": "docker://x", "binds": binds}}, runtime="podman")
    (run,) = plan.study.runs
    words = shlex.split(plan.command(run.id, attempt=1))
    flags = words[: words.index("--")]
    assert "--form=results/images/train/podman.json" in flags
    assert [word for word in flags if word.startswith("--bind")] == [f"--bind={b}" for b in binds]
    (made_from,) = (word for word in flags if word.startswith("--made-from="))
    made_from = json.loads(made_from.partition("=")[2])
    assert (made_from["image"], made_from["environment"]) == ("docker://x@any", None)
    assert words[words.index("--") + 1] == "envs/train/.venv/bin/python"


def test_the_directive_enters_the_images_of_pending_apptainer_runs_only(contained):
    plan = contained(runtime=["bare", "podman", "apptainer"])
    images = {runtime: plan.directive_image(run.id) for runtime, run in by_runtime(plan).items()}
    assert images == {
        "bare": None, "podman": None, "apptainer": "results/images/train/apptainer/image.sif"
    }  # fmt: skip
    commanded = contained(runtime="apptainer", runtime_options={"start": "command"})
    assert [commanded.directive_image(run_id) for run_id in commanded.runs] == [None]
    packed = contained(runtime="apptainer", copies_per_node=2)
    assert [packed.directive_image(run_id) for run_id in packed.runs] == [None]


def test_a_finished_run_needs_no_image(contained):
    plan = contained(runtime=["bare", "apptainer"])
    run = by_runtime(plan)["apptainer"]
    log = finish(run, records.made_from(run, image_settings=plan.study.images))
    parsing.parse(run, log, log.with_name("run.json"))
    again = contained(runtime=["bare", "apptainer"])
    assert run.id not in again.pending
    assert again.directive_image(run.id) is None
    assert again.training_inputs(type("Wildcards", (), {"run_id": run.id})) == {}
    assert again.directive_environment == {}


def test_what_lies_elsewhere_is_seen_in_the_container(contained, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    models, disk = elsewhere / "models", elsewhere / "disk"
    models.mkdir()
    disk.mkdir()
    Path("results").symlink_to(disk)
    (models / "mine.py").write_text("")
    plan = contained(runtime="podman")
    plan = dataclasses.replace(
        plan,
        study=dataclasses.replace(plan.study, model_folder=str(models)),
        adopted={"synthetic": (elsewhere / "data", "digest")},
    )
    (run,) = plan.study.runs
    words = shlex.split(plan.command(run.id, attempt=1))
    binds = [word.partition("=")[2] for word in words if word.startswith("--bind=")]
    assert binds == [str(models), str(elsewhere / "data"), str(disk)]


def test_the_directive_gets_binds_by_variables(contained):
    plan = contained(
        {"train": {"source": "docker://x", "binds": ["/scratch"]}}, runtime=["podman", "apptainer"]
    )
    expected = {f"{tool}_BIND": "/scratch:/scratch:rw" for tool in ("APPTAINER", "SINGULARITY")}
    assert plan.directive_environment == expected
    assert contained(runtime="podman").directive_environment == {}


def test_without_its_program_a_runtime_is_skipped_and_its_image_not_made(contained):
    plan = contained(runtime=["bare", "podman", "apptainer", "docker"], there=["podman"])
    runs = by_runtime(plan)
    assert plan.skipped == {
        runs["apptainer"].id: "runtime apptainer: apptainer or singularity is not on the path of "
        "this machine",
        runs["docker"].id: "runtime docker: docker is not on the path of this machine",
    }
    assert plan.environments == [
        "results/environments/train.json", "results/images/train/podman.json"
    ]  # fmt: skip
    assert plan.directive_image(runs["apptainer"].id) is None


def test_an_image_that_is_not_there_is_named_before_anything_is_done(contained):
    with pytest.raises(SystemExit, match=r"images: source lost\.sif: expected a SIF file, a root"):
        contained({"train": {"source": "lost.sif"}}, runtime="apptainer")
    # A run that cannot be done here needs none.
    plan = contained({"train": {"source": "lost.sif"}}, runtime=["bare", "docker"], there=[])
    assert list(plan.skipped) == [by_runtime(plan)["docker"].id]


def archive(content):
    blobs = Blobs()
    blobs.index(blobs.image([tar({"bin/sh": content})]))
    Path("mine.tar").write_bytes(tar(blobs))


MINE = {"mine": {"source": "mine.tar"}}


def test_another_image_is_made_again_and_its_runs_with_it(contained):
    def planned():
        return contained(MINE, runtime=["podman"], environment=["mine", "train"])

    archive(b"one")
    settings = images.settings("mine", MINE)
    image_sources.make("mine", settings, images.image_path("mine"))
    mine, train = sorted(planned().study.runs, key=lambda run: run.environment)
    for run in (mine, train):
        log = finish(run, records.made_from(run, image_settings=MINE))
        parsing.parse(run, log, log.with_name("run.json"))
    assert planned().pending == {}
    assert planned().forced == frozenset()
    archive(b"two")
    again = planned()
    assert {run_id: state.value for run_id, (state, _) in again.pending.items()} == {
        mine.id: "stale"
    }
    assert again.forced == {
        "results/images/mine/image.json",
        f"results/runs/{mine.id}/run.json",
        f"results/runs/{mine.id}/train.jsonl",
    }


def test_what_an_image_lacked_is_no_reason_to_skip_once_it_is_another_one(contained):
    def planned():
        block = {"strategy": ["single", "horovod"], "runtime": "podman", "environment": "mine"}
        return contained(MINE, **block)

    archive(b"one")
    image_sources.make("mine", images.settings("mine", MINE), images.image_path("mine"))
    digest = images.read(images.image_path("mine")).digest
    form = {"image": "mine", "digest": digest, "packages": {"horovod": None}}
    Path("results/images/mine/podman.json").write_text(json.dumps(form))
    (reason,) = planned().skipped.values()
    assert reason == f"horovod is not in the image mine ({digest})"
    archive(b"two")
    assert planned().skipped == {}


def test_an_image_is_no_environment_of_bare_metal(contained):
    with pytest.raises(SystemExit) as error:
        contained(MINE, runtime=["bare", "podman"], environment="mine")
    assert "environment: no folder envs/mine; there are: train" in str(error.value)
    with pytest.raises(SystemExit) as error:
        contained(MINE, runtime="podman", environment="min")
    assert "no folder envs/min and no such image under images (did you mean 'mine'?)" in str(
        error.value
    )


def test_exports_are_made_in_an_environment_that_is_installed(contained):
    archive(b"content")
    plan = contained(MINE, runtime="podman", environment="mine")
    assert plan.export_environment == "results/environments/train.json"


def test_an_option_that_a_runtime_lacks_is_named_with_the_nearest(contained):
    with pytest.raises(SystemExit) as error:
        contained(runtime="udocker", runtime_options={"execmod": "P1"})
    assert (
        "matrix[0] (block).runtime_options: runtime udocker has no option 'execmod' "
        "(did you mean 'execmode'?)"
    ) in str(error.value)
    with pytest.raises(SystemExit) as error:
        contained(runtime="udocker", runtime_options={"execmode": "P3"})
    assert "execmode: expected one of P1, P2, F1, F2, F3, F4, R1, S1, found 'P3'" in str(
        error.value
    )
