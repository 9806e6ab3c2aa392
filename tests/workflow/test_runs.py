"""What becomes of runs that fail, that cannot be done, and that need a thing added by one file."""

import json
import shutil

import pytest

from dlbench.common.files import sha256
from dlbench.machine import fingerprints
from support.campaigns.campaign import TRAINED
from support.images.image_files import SIF, runnable_root
from support.studies.site_facts import SITE

QUICK = {"name": "quick", "dataset": "synthetic", "batch_per_device": 4, "warmup_steps": 1}
PLUGINS = {
    "models": "lenet5", "datasets": "digits", "strategies": "single", "launchers": "none",
    "runtimes": "bare", "figures": "loss",
}  # fmt: skip
MODELS = "workflow_scripts/dlbench/trainer/keras/models"


def coverage(campaign):
    """{run's id: (status, reason)}."""
    rows = campaign.rows("coverage")
    return {row["run_id"]: (row["status"], row["reason"]) for row in rows}


@pytest.mark.ci
def test_runs_that_fail_stop_no_other_and_are_trained_again_once_forgotten(fresh):
    lenet5 = (fresh.folder / MODELS / "lenet5.py").read_text()
    own = fresh.folder / "my models"
    own.mkdir()
    for name, line in (
        ("broken", "    raise RuntimeError('no!')\n"),
        ("killed", "    __import__('os').kill(__import__('os').getpid(), 9)\n"),
        ("mine", ""),
    ):
        (own / f"{name}.py").write_text(
            lenet5.replace("    return keras", f"{line}    return keras")
        )
    gate = {"dataset": "digits", "epochs": 1, "must_reach": {"top1": 0.999}, "batch_per_device": 64}
    two = {"strategy": "mirrored", "devices_per_node": 2, "steps": 2}
    fresh.configure(
        matrix=[
            QUICK | {"model": ["broken", "killed"], "steps": 2},
            QUICK | {"name": "far", "model": "lenet5", "learning_rate": 3e38, "steps": 5},
            QUICK | {"name": "hard", "model": "mine"} | gate,
            QUICK | {"name": "two", "model": "lenet5"} | two,
        ],
        site=SITE | {"devices_per_node": 1},
        model_folder=own.name,
        figures=[],
    )
    output = fresh.succeed()
    states = coverage(fresh)
    broken, killed, mine, skipped = map(
        fresh.run_id, ("broken-", "killed-", "mine-", "lenet5-synthetic-b4-mirrored-1x2")
    )
    (diverged,) = states.keys() - {broken, killed, mine, skipped}
    assert states[broken] == ("failed", "RuntimeError: no!")
    assert "no!" in (fresh.folder / f"results/logs/train/{broken}.log").read_text()
    assert states[diverged] == ("failed", "the loss is not a number")
    assert "failed (the loss is not a number)" in output
    assert states[skipped] == ("skipped", "needs 2 cpu devices per node; this site has 1")
    status, reason = states[killed]
    assert status == "failed" and "killed by SIGKILL" in reason
    # That may pass by itself, an error of Python does not.
    runs = fresh.folder / "results/runs"
    attempts = [path.parent.name for path in runs.glob("*/*.attempt*")]
    assert attempts == [killed]
    status, reason = states[mine]
    assert status in TRAINED and "missed: top1 0." in reason
    assert reason.endswith("expected at least 0.999")
    assert "batch 64, single on 1 device, repeat 1: missed: top1 0." in output
    # What ended before its first step is no result.
    assert fresh.scheduled()["train"] == [killed]
    assert f"measured nothing: {states[killed][1]}" in fresh.output

    assert "would forget 3 runs" in fresh.dlbench("forget", "--dry-run")
    fresh.dlbench("forget")
    (own / "mine.py").write_text(lenet5.replace("16, 5", "8, 5"))
    assert fresh.scheduled()["train"] == sorted([broken, diverged, killed, mine])
    assert (runs / broken / "train.attempt1.jsonl").is_file()


@pytest.mark.ci
def test_each_kind_of_thing_is_added_by_one_file_and_a_framework_by_one_folder(campaign):
    library = campaign.folder / "workflow_scripts/dlbench"
    for kind, like in PLUGINS.items():
        files = list(library.glob(f"**/{kind}/**/{like}.py"))  # of each framework
        assert files
        for file in files:
            shutil.copyfile(file, file.with_name("mine.py"))
    # A framework is one folder; here TensorFlow's under another name.
    shutil.copytree(library / "trainer/tensorflow", library / "trainer/mine")
    for file in (library / "trainer/mine").rglob("*.py"):
        text = file.read_text().replace("dlbench.trainer.tensorflow", "dlbench.trainer.mine")
        file.write_text(text.replace('"tensorflow/', '"mine/'))
    fields = ("framework", "model", "dataset", "strategy", "launcher", "runtime")
    added = dict.fromkeys(fields, "mine")
    campaign.configure(matrix=[QUICK | added | {"name": "mine", "steps": 2}], figures=["mine"])
    campaign.succeed()
    record = json.loads(campaign.record("mine-").read_text())
    assert record["status"] in TRAINED and record["spec"]["framework"] == "mine"
    assert (campaign.folder / "results/figures/mine.svg").is_file()


@pytest.mark.skipif(not shutil.which("apptainer"), reason="apptainer is not installed")
def test_an_image_that_cannot_be_had_costs_its_own_runs_only_and_is_tried_again(fresh):
    without_python = runnable_root(str(fresh.folder / "root"))
    (fresh.folder / "half.sif").write_bytes(SIF)
    images = {"empty": {"source": without_python}, "half": {"source": "half.sif"}}
    contained = [{"runtime": "apptainer", "environment": name} for name in images]
    block = QUICK | {"model": "lenet5", "runtime": "bare", "include": contained, "steps": 2}
    fresh.configure(matrix=[block], images=images, figures=[])
    fresh.succeed()
    found = sorted(coverage(fresh).values())
    assert found[0][0] in TRAINED
    assert [status for status, _ in found[1:]] == ["skipped", "skipped"]
    assert json.loads(fresh.dlbench("status", "--json"))["combinations"]["skipped"] == 2
    reasons = sorted(reason for _, reason in found[1:])
    assert "image empty under apptainer: Python could not be started inside" in reasons[0]
    assert "image half could not be made: " in reasons[1] and "cannot run sh in it" in reasons[1]

    again = fresh.scheduled()
    assert len(again["train"]) == 2
    assert again["make_image"] == ["half"]
    assert again["prepare_image"] == ["empty, form=apptainer", "half, form=apptainer"]
    # Asked for alone, images that are not there are an error.
    finished = fresh.snakemake("images")
    assert finished.returncode != 0
    assert all(reason in finished.stdout for reason in reasons)
    # By now there is a Python, though none that trains: all was done anew.
    shutil.copy(fresh.folder / "root/bin/cat", fresh.folder / "root/bin/python3")
    fresh.succeed()
    changed = sorted(reason for status, reason in coverage(fresh).values() if status == "skipped")
    assert changed[0] != reasons[0] and changed[1] == reasons[1]


@pytest.mark.ci
def test_horovod_runs_are_skipped_until_horovod_is_installed(fresh):
    environment = fresh.folder / "envs/train/.venv"
    real = environment.resolve()
    environment.unlink()
    (site_packages,) = real.glob("lib/python3*/site-packages")
    horovods = list(site_packages.glob("horovod*"))
    if not horovods:
        pytest.skip("dlbench environment envs/train --extra horovod installs Horovod")
    mirror = environment / site_packages.relative_to(real)
    mirror.mkdir(parents=True)
    # Copied, since it is written to when the environment is checked.
    shutil.copytree(real / "bin", environment / "bin", symlinks=True)
    shutil.copy(real / "pyvenv.cfg", environment)
    for path in {*site_packages.iterdir()} - {*horovods}:
        (mirror / path.name).symlink_to(path)
    block = QUICK | {"model": "lenet5", "strategy": ["single", "horovod"], "steps": 2}
    fresh.configure(matrix=[block], figures=[])
    fresh.succeed()
    horovod = fresh.run_id("lenet5-synthetic-b4-horovod")
    status, reason = coverage(fresh)[horovod]
    assert status == "skipped"
    assert reason.endswith(" dlbench environment envs/train --extra horovod")

    for path in horovods:
        (mirror / path.name).symlink_to(path)
    assert fresh.scheduled()["train"] == [horovod]
    fresh.succeed()
    assert coverage(fresh)[horovod][0] in TRAINED


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "text", "messages"),
    [
        (
            "config.yaml",
            "matrix: [{name: a, model: lenet5, dataset: synthetic, batch_per_device: 0, step: 1}]",
            ["batch_per_device: expected at least 1, found 0", "unknown key 'step'"],
        ),
        (
            "site.yaml",
            "site:\n  name: here\n   nodes: 2\n",
            ["site.yaml, line 3: no YAML: mapping"],
        ),
        (f"{MODELS}/lenet5.py", "\n\ndef (\n", ["lenet5.py, line 3: not valid"]),
    ],
    ids=["values", "no YAML", "no Python"],
)
def test_a_mistake_is_named_in_one_line_before_anything_is_done(fresh, name, text, messages):
    (fresh.folder / name).write_text(text)
    finished = fresh.snakemake()
    assert finished.returncode != 0 and "Traceback" not in finished.stdout
    lines = finished.stdout.splitlines()
    assert [sum(message in line for line in lines) for message in messages] == [1] * len(messages)
    assert not (fresh.folder / "results").exists()


@pytest.mark.ci
def test_tables_account_for_the_time_of_each_run_and_name_one_machine_and_its_packages(campaign):
    spent = {}
    for row in campaign.rows("accounts"):
        spent.setdefault(row["run_id"], {})[row["part"]] = float(row["spent_s"])
    rows, records = campaign.rows(), campaign.records()
    assert len(rows) == 3 and spent.keys() == records.keys()
    for row in rows:
        parts = spent[row["run_id"]]
        assert sum(parts.values()) == pytest.approx(float(row["wall_s"]), rel=0.005)
        assert {"start", "imports", "build", "compile", "warm_up", "steps", "shutdown"} <= {*parts}
        assert parts["imports"] < float(row["import_s"])
        assert 0 < float(row["goodput"]) < 1 and row["repeats_differ"] == ""
    for name in fingerprints.COLUMNS:
        (digest,) = {row[name] for row in rows}
        assert len(digest) == 64
    (packages,) = (campaign.folder / "results/packages").iterdir()
    assert packages.stem == sha256(packages)
    for row in rows:
        known = records[row["run_id"]]["provenance"]
        (software,) = known["software"].values()
        assert software["packages_sha256"] == packages.stem
        assert fingerprints.columns(known)["hardware_sha256"] == row["hardware_sha256"]
