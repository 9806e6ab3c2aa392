"""planning: which images are made, in which forms, and how runs are started in them."""

import dataclasses
import json
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.data import stores
from dlbench.images import make_image, trainer_image
from dlbench.plan import planning, run_command
from dlbench.records import judgement
from support.images.image_files import Blobs, tar
from support.studies.planned_runs import STUDY, finish_and_read

PROGRAMS = ("apptainer", "podman", "udocker", "ch-run")


@pytest.fixture
def contained(project, monkeypatch):
    """A function that plans a study in containers, on a machine with some of the programs."""
    (project / "bin").mkdir()
    monkeypatch.setenv("PATH", str(project / "bin"))

    def make(settings=None, there=PROGRAMS, **changes):
        for name in PROGRAMS:
            program = project / "bin" / name
            program.unlink(missing_ok=True)
            if name in there:
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
        judgement._image.cache_clear()
        block = {"name": "block", "model": "lenet5", "dataset": "synthetic", "steps": 5}
        block = block | {"batch_per_device": 8, "repeats": 1} | changes
        return planning.make_plan(STUDY | {"matrix": [block], "images": settings or {}})

    yield make
    judgement._image.cache_clear()


def by_runtime(plan):
    return {run.runtime: run for run in plan.study.runs}


def test_all_environments_and_images_in_all_forms_are_listed_once(contained):
    runtimes = ["bare", "apptainer", "podman", "udocker"]
    plan = contained(runtime=runtimes, batch_per_device=[8, 16])
    assert plan.environments == [
        "results/environments/train.json",
        "results/images/train/apptainer.json",
        "results/images/train/podman.json",
        "results/images/train/udocker-P1.json",
    ]
    runs = by_runtime(plan)
    for runtime, form in (("bare", None), ("podman", "podman"), ("udocker", "udocker-P1")):
        expected = f"results/images/train/{form}.json" if form else plan.environments[0]
        assert plan.training_inputs(runs[runtime].id) == [expected]


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
    assert run_command.prepare_image_arguments(plan, "train", "udocker-P2") == [
        "--runtime=udocker",
        '--options={"execmode": "P2"}',
        "--python=/opt/my python/bin/python",
        "--device=cpu",
    ]
    with pytest.raises(Error, match="no run of this study takes an image in the form 'udocker-S1'"):
        run_command.prepare_image_arguments(plan, "train", "udocker-S1")


def test_a_run_in_a_container_is_told_its_form_and_binds(contained):
    binds = ["/my data:/in put:ro", "/scratch"]
    plan = contained({"train": {"source": "docker://x", "binds": binds}}, runtime="podman")
    (run,) = plan.study.runs
    arguments = run_command.start_run_arguments(plan, run.id)
    flags = arguments[: arguments.index("--")]
    assert "--form=results/images/train/podman.json" in flags
    assert [word for word in flags if word.startswith("--bind")] == [f"--bind={b}" for b in binds]
    (made_from,) = (word for word in flags if word.startswith("--made-from="))
    made_from = json.loads(made_from.partition("=")[2])
    assert (made_from["image"], made_from["environment"]) == ("docker://x@any", None)
    assert arguments[arguments.index("--") + 1] == "envs/train/.venv/bin/python"


def test_the_directive_enters_the_images_of_pending_apptainer_runs_only(contained):
    plan = contained(runtime=["bare", "podman", "apptainer"])
    images = {runtime: plan.directive_image(run.id) for runtime, run in by_runtime(plan).items()}
    sif = "results/images/train/apptainer/image.sif"
    assert images == {"bare": None, "podman": None, "apptainer": sif}
    commanded = contained(runtime="apptainer", runtime_options={"start": "command"})
    assert [commanded.directive_image(run_id) for run_id in commanded.runs] == [None]
    packed = contained(runtime="apptainer", copies_per_node=2)
    assert [packed.directive_image(run_id) for run_id in packed.runs] == [None]


def test_a_finished_run_needs_no_image(contained):
    plan = contained(runtime=["bare", "apptainer"])
    run = by_runtime(plan)["apptainer"]
    finish_and_read(run, judgement.made_from(run, judgement.Basis(images=plan.study.images)))
    again = contained(runtime=["bare", "apptainer"])
    assert run.id not in again.pending
    assert again.directive_image(run.id) is None
    assert again.directive_environment == {}


def test_an_image_that_was_removed_skips_its_runs_alone(contained, tmp_path):
    sif = tmp_path / "image.sif"
    sif.write_bytes(b"#!/usr/bin/env run-singularity\nSIF_MAGIC\0")
    images = {"train": {"source": str(sif)}}
    apptainer = by_runtime(contained(images, runtime=["bare", "apptainer"]))["apptainer"]
    sif.unlink()
    plan = contained(images, runtime=["bare", "apptainer"])
    assert list(plan.skipped) == [apptainer.id] and "found nothing" in plan.skipped[apptainer.id]
    assert plan.environments == ["results/environments/train.json"]
    with pytest.raises(
        Error, match=r"nothing remains.*\n.*image\.sif: expected a SIF file, a root"
    ):
        contained(images, runtime="apptainer")
    # A run that cannot be done here needs none.
    elsewhere = contained(images, runtime=["bare", "docker"], there=[])
    assert list(elsewhere.skipped) == [by_runtime(elsewhere)["docker"].id]
    # What is finished needs it no more: tables and figures are made of it.
    finish_and_read(apptainer, judgement.made_from(apptainer, judgement.Basis(images=images)))
    assert contained(images, runtime="apptainer").pending == {}


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
        adopted={"synthetic": stores.Store(elsewhere / "data", "digest")},
    )
    (run,) = plan.study.runs
    arguments = run_command.start_run_arguments(plan, run.id)
    binds = [word.partition("=")[2] for word in arguments if word.startswith("--bind=")]
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
    lacking = {"apptainer": "apptainer or singularity", "docker": "docker"}
    assert plan.skipped == {
        runs[name].id: f"runtime {name} is not installed: {program} is not on the path of this "
        "machine"
        for name, program in lacking.items()
    }
    assert plan.environments[1:] == ["results/images/train/podman.json"]
    assert plan.directive_image(runs["apptainer"].id) is None


def archive(content):
    blobs = Blobs()
    blobs.index(blobs.image([tar({"bin/sh": content})]))
    Path("mine.tar").write_bytes(tar(blobs))


MINE = {"mine": {"source": "mine.tar"}}


def test_another_image_is_made_again_and_its_runs_with_it(contained):
    def planned():
        return contained(MINE, runtime=["podman"], environment=["mine", "train"])

    archive(b"one")
    settings = trainer_image.settings("mine", MINE)
    make_image.make("mine", settings, trainer_image.image_path("mine"))
    mine, train = sorted(planned().study.runs, key=lambda run: run.environment)
    for run in (mine, train):
        finish_and_read(run, judgement.made_from(run, judgement.Basis(images=MINE)))
    assert planned().pending == {}
    assert planned().remade == frozenset()
    archive(b"two")
    again = planned()
    states = {run_id: state.value for run_id, (state, _) in again.pending.items()}
    assert states == {mine.id: "stale"}
    assert again.remade == {"results/images/mine/image.json"}


def test_what_an_image_lacked_is_no_reason_to_skip_once_it_is_another_one(contained):
    def planned():
        block = {"strategy": ["single", "horovod"], "runtime": "podman", "environment": "mine"}
        return contained(MINE, **block)

    archive(b"one")
    make_image.make("mine", trainer_image.settings("mine", MINE), trainer_image.image_path("mine"))
    digest = trainer_image.read(trainer_image.image_path("mine")).digest
    form = {"image": "mine", "digest": digest, "packages": {"horovod": None}}
    Path("results/images/mine/podman.json").write_text(json.dumps(form))
    (reason,) = planned().skipped.values()
    assert reason == f"horovod is not in the image mine ({digest})"
    archive(b"two")
    assert planned().skipped == {}


def test_an_image_of_another_study_is_not_replaced_by_one_of_the_same_name(contained):
    archive(b"one")
    name = trainer_image.image_path("mine")
    make_image.make("mine", trainer_image.settings("mine", MINE), name, "theirs")
    Path("other.tar").write_bytes(Path("mine.tar").read_bytes())
    other = {"mine": {"source": "other.tar"}}
    widest = {"dataset": "digits", "batch_per_device": "max"}
    for searched in ({}, widest):
        with pytest.raises(Error) as error:
            contained(other, runtime="podman", environment="mine", **searched)
        assert (
            "images: the name mine is taken: study 'theirs' made an image of this name from "
            "mine.tar, this study from other.tar. Give yours another name, under images and as "
            "environment in the matrix; or delete results/images/mine, if that study is over"
        ) in str(error.value)
    # The same image serves both, and a study may change its own.
    assert contained(MINE, runtime="podman", environment="mine").remade == frozenset()
    made = json.loads(Path(name).read_text())
    Path(name).write_text(json.dumps(made | {"study": STUDY["study"]}))
    contained(other, runtime="podman", environment="mine")


def test_an_image_that_could_not_be_made_is_tried_again_at_each_start(contained):
    archive(b"one")
    path, form = trainer_image.image_path("mine"), "results/images/mine/apptainer.json"
    make_image.make("mine", trainer_image.settings("mine", MINE), path)
    (run,) = contained(MINE, runtime="apptainer", environment="mine").runs.values()
    assert trainer_image.directive_image(run) == "results/images/mine/apptainer/image.sif"
    with trainer_image.record_failure(form):
        raise Error("no room, says https://me:secret@registry")
    assert trainer_image.directive_image(run) is None  # and the run says why
    with pytest.raises(trainer_image.Unusable, match="no room, says https://"):
        trainer_image.read_form(form)
    assert "secret" not in Path(form).read_text()
    plan = contained(MINE, runtime="apptainer", environment="mine")
    assert plan.remade == {form} and plan.skipped == {}
    Path(form).unlink()
    # So it is with the image itself, which has no digest then.
    with trainer_image.record_failure(path, "image mine could not be made: "):
        raise OSError(28, "No space left on device")
    assert contained(MINE, runtime="apptainer", environment="mine").remade == {path}
    assert trainer_image.digest("mine", trainer_image.settings("mine", MINE)) is None
    with pytest.raises(Error, match=r"mine could not be made: \[Errno 28\] No space left"):
        trainer_image.read(path)


def test_an_image_is_no_environment_of_bare_metal(contained):
    with pytest.raises(Error) as error:
        contained(MINE, runtime=["bare", "podman"], environment="mine")
    assert "environment: no folder envs/mine (did you mean" in str(error.value)
    with pytest.raises(Error, match=r"no folder envs/min and no such image .*mean 'mine'\?"):
        contained(MINE, runtime="podman", environment="min")


def test_exports_are_made_in_an_environment_that_is_installed(contained):
    archive(b"content")
    plan = contained(MINE, runtime="podman", environment="mine")
    assert plan.export_environment == "results/environments/train.json"


def test_an_option_that_a_runtime_lacks_is_named_with_its_block(contained):
    words = r"matrix\[0\] \(block\)\.runtime_options: runtime udocker has no option 'execmod'"
    with pytest.raises(Error, match=words):
        contained(runtime="udocker", runtime_options={"execmod": "P1"})
