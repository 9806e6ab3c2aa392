"""What becomes of runs that fail, that cannot be done, and that need a thing added by one file."""

import csv
import json
import shutil
import subprocess
import sys

import pytest

from support.campaigns.campaign import STUDY
from support.images.image_files import SIF, runnable_root
from support.studies.site_facts import SITE

QUICK = {"name": "quick", "dataset": "synthetic", "batch_per_device": 4, "warmup_steps": 1}
TRAINED = ("ok", "unstable")  # so few steps may well stall on a busy machine
PLUGINS = {
    "models": "lenet5",
    "datasets": "digits",
    "strategies": "single",
    "launchers": "none",
    "runtimes": "bare",
    "figures": "loss",
}
MODELS = "workflow_scripts/dlbench/trainer/keras/models/convolutional"


def coverage(campaign):
    with open(campaign.folder / "results/tables/coverage.csv", newline="") as file:
        return {row["run_id"]: (row["status"], row["reason"]) for row in csv.DictReader(file)}


def program(campaign, name, *arguments):
    return subprocess.run(
        [sys.executable, f"workflow_scripts/{name}", *arguments],
        cwd=campaign.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.ci
def test_a_failing_run_stops_no_other_and_is_forgotten_on_demand(fresh):
    models = fresh.folder / MODELS
    (models / "broken.py").write_text(
        (models / "lenet5.py")
        .read_text()
        .replace("    return keras", '    raise RuntimeError("no!")\n    return keras')
    )
    diverging = {"model": "lenet5", "learning_rate": 3e38, "steps": 5}
    fresh.configure(
        matrix=[
            QUICK | {"model": "broken", "steps": 2},
            QUICK | diverging | {"name": "diverging"},
            QUICK | {"name": "sound", "model": "lenet5", "steps": 3},
        ],
        figures=[],
    )
    output = fresh.succeed()
    states = coverage(fresh)
    broken, diverged = fresh.run_id("broken-"), read_id(fresh, "learning_rate")
    sound = next(run for run in states if run not in (broken, diverged))
    assert states[broken] == ("failed", "RuntimeError: no!")
    assert states[diverged] == ("failed", "the loss is not a number")
    assert states[sound][0] in TRAINED
    assert "failed (the loss is not a number)" in output
    assert '"run_end"' in fresh.record("broken-").with_name("train.jsonl").read_text()
    assert "no!" in (fresh.folder / f"results/logs/train/{broken}.log").read_text()
    assert fresh.scheduled() == {}

    assert "would forget 2 runs" in program(fresh, "dlbench", "forget", "--dry-run")
    assert fresh.scheduled() == {}
    program(fresh, "dlbench", "forget")
    assert sorted(fresh.scheduled()["train"]) == sorted([broken, diverged])
    assert list((fresh.folder / "results/runs" / broken).glob("train.attempt1.jsonl"))


def read_id(campaign, key):
    """The id of the run whose values have a key."""
    for path in (campaign.folder / "results/runs").glob("*/run.json"):
        if key in json.loads(path.read_text())["spec"]:
            return path.parent.name
    raise AssertionError(f"no run has {key}")


@pytest.mark.ci
def test_a_trainer_that_is_killed_is_tried_again_before_it_counts_as_failed(fresh):
    models = fresh.folder / MODELS
    (models / "killed.py").write_text(
        (models / "lenet5.py")
        .read_text()
        .replace("import keras\n", "import os\n\nimport keras\n")
        .replace("    return keras", "    os.kill(os.getpid(), 9)\n    return keras")
    )
    fresh.configure(matrix=[QUICK | {"model": "killed", "steps": 2}], figures=[])
    fresh.succeed()
    ((status, reason),) = coverage(fresh).values()
    assert status == "failed"
    assert "killed by SIGKILL" in reason
    place = fresh.record("killed-").parent
    assert [path.name for path in place.glob("*.attempt*")] == ["train.attempt1.jsonl"]


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
    campaign.configure(
        matrix=[QUICK | added | {"name": "mine", "steps": 2}], figures=["loss", "mine"]
    )
    assert len(campaign.scheduled()["train"]) == 1
    campaign.succeed()
    record = json.loads(campaign.record("mine-").read_text())
    assert record["status"] in TRAINED and record["spec"]["framework"] == "mine"
    assert (campaign.folder / "results/figures/mine.svg").is_file()


def test_a_model_of_the_users_own_folder_is_trained_again_when_it_changes(fresh):
    folder = fresh.folder / "my models"
    folder.mkdir()
    ours = (fresh.folder / MODELS / "lenet5.py").read_text()
    (folder / "mine.py").write_text(ours)
    matrix = [QUICK | {"model": ["mine", "lenet5"], "steps": 2}]
    fresh.configure(matrix=matrix, model_folder="my models", figures=[])
    fresh.succeed()
    mine = fresh.run_id("mine-")
    assert coverage(fresh)[mine][0] in TRAINED
    assert fresh.scheduled() == {}
    (folder / "mine.py").write_text(ours.replace("16, 5", "8, 5"))
    assert fresh.scheduled()["train"] == [mine]


def test_a_run_that_misses_its_learning_gate_is_named(fresh):
    block = QUICK | {"model": "lenet5", "dataset": "digits", "epochs": 1}
    fresh.configure(
        matrix=[
            block | {"name": "hard", "must_reach": {"top1": 0.999}, "batch_per_device": 32},
            block | {"name": "easy", "must_reach": {"top1": 0.01}, "batch_per_device": 64},
        ],
        figures=[],
    )
    output = fresh.succeed()
    states = coverage(fresh)
    hard, easy = (states[fresh.run_id(f"lenet5-digits-b{batch}-")] for batch in (32, 64))
    assert "missed: top1 0." in hard[1]
    assert hard[1].endswith("expected at least 0.999")
    assert "missed" not in easy[1]
    assert "batch 32, single on 1 device, repeat 1: missed: top1 0." in output
    with open(fresh.folder / "results/tables/runs.csv", newline="") as file:
        gates = [row["learning_gate"] for row in csv.DictReader(file)]
    assert sorted(gate[:6] for gate in gates) == ["missed", "reache"]


def test_what_this_machine_cannot_do_is_recorded_with_its_reason(fresh):
    block = QUICK | {"model": "lenet5", "strategy": "mirrored", "devices_per_node": [1, 2]}
    study = {"matrix": [block | {"steps": 2}], "figures": []}
    fresh.configure(**study, site=SITE | {"devices_per_node": 1})
    scheduled = fresh.scheduled()
    fresh.succeed()
    two = fresh.run_id("lenet5-synthetic-b4-mirrored-1x2")
    assert scheduled["skip_run"] == [two] and two not in scheduled["train"]
    assert coverage(fresh)[two] == (
        "skipped",
        "needs 2 cpu devices per node; this site has 1",
    )
    assert fresh.scheduled() == {}
    fresh.configure(**study)
    assert fresh.scheduled()["train"] == [two]


@pytest.mark.slow
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
    assert [status in TRAINED for status, _ in found] == [True, False, False]
    assert [status for status, _ in found[1:]] == ["skipped", "skipped"]
    command = [sys.executable, "workflow_scripts/dlbench", "status", "--json"]
    printed = subprocess.check_output(command, cwd=fresh.folder, env=fresh.environment())
    assert json.loads(printed)["combinations"]["skipped"] == 2  # and not stale
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
    mirror = environment / site_packages.relative_to(real)
    mirror.mkdir(parents=True)
    # Copied, since it is written to when the environment is checked.
    shutil.copytree(real / "bin", environment / "bin", symlinks=True)
    shutil.copy(real / "pyvenv.cfg", environment)
    for path in site_packages.iterdir():
        if not path.name.startswith("horovod"):
            (mirror / path.name).symlink_to(path)
    fresh.configure(
        matrix=[QUICK | {"model": "lenet5", "strategy": ["single", "horovod"], "steps": 2}],
        figures=[],
    )
    fresh.succeed()
    horovod = fresh.run_id("lenet5-synthetic-b4-horovod")
    status, reason = coverage(fresh)[horovod]
    assert status == "skipped"
    assert reason.endswith(" dlbench environment envs/train --extra horovod")

    for path in site_packages.glob("horovod*"):
        (mirror / path.name).symlink_to(path)
    assert fresh.scheduled()["train"] == [horovod]
    fresh.succeed()
    assert coverage(fresh)[horovod][0] in TRAINED


@pytest.mark.ci
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lenet6"}, "did you mean 'lenet5'?"),
        ({"batch_per_device": 0}, "batch_per_device: expected at least 1, found 0"),
        ({"batchsize": 4}, "unknown key 'batchsize'"),
        ({"learning_rate": float("nan")}, "learning_rate: expected a finite number, found nan"),
        (
            {"model": "resnet50", "dataset": "imagenet", "exclude": []},
            "then put imagenet into data.terms_accepted",
        ),
    ],
)
def test_a_mistake_in_the_config_ends_it_before_anything_is_done(fresh, changes, message):
    fresh.matrix(**changes)
    finished = fresh.snakemake()
    assert finished.returncode != 0
    assert message in finished.stdout
    assert "Traceback" not in finished.stdout
    assert not (fresh.folder / "results").exists()


def test_a_file_of_the_config_that_cannot_be_read_is_named_with_its_line(fresh):
    """Snakemake would take the last of two keys, and name neither file nor line of other slips."""
    (fresh.folder / "site.yaml").write_text("site:\n  name: here\n   nodes: 2\n")
    finished = fresh.snakemake("-n")
    assert finished.returncode != 0
    assert "site.yaml, line 3: no YAML: mapping values are not allowed" in finished.stdout
    assert "Traceback" not in finished.stdout

    (fresh.folder / "site.yaml").unlink()
    (fresh.folder / "mine.yaml").write_text("repeats: 2\nstudy: mine\nrepeats: 3\n")
    finished = fresh.snakemake("-n", "--configfile", "mine.yaml")
    assert finished.returncode != 0
    assert "mine.yaml, line 3: the key 'repeats' is twice in one mapping" in finished.stdout


def test_a_model_that_is_not_valid_python_is_named_before_anything_is_done(fresh):
    path = fresh.folder / MODELS / "lenet5.py"
    path.write_text(path.read_text() + "def (\n")
    finished = fresh.snakemake()
    assert finished.returncode != 0
    assert f"lenet5.py, line {len(path.read_text().splitlines())}: not valid" in finished.stdout
    assert not (fresh.folder / "results").exists()


@pytest.mark.ci
def test_figures_are_drawn_again_byte_for_byte(campaign):
    figures = campaign.folder / "results/figures"
    before = {path.name: path.read_bytes() for path in figures.iterdir()}
    assert sorted(before) == [
        f"{name}.{suffix}" for name in ("loss", "scaling") for suffix in ("pdf", "png", "svg")
    ]
    shutil.rmtree(figures)
    campaign.succeed()
    assert {path.name: path.read_bytes() for path in figures.iterdir()} == before


@pytest.mark.ci
def test_the_time_of_each_run_is_accounted_for(campaign):
    spent = {}
    with open(campaign.folder / "results/tables/accounts.csv", newline="") as file:
        for row in csv.DictReader(file):
            spent.setdefault(row["run_id"], {})[row["part"]] = float(row["spent_s"])
    with open(campaign.folder / "results/tables/runs.csv", newline="") as file:
        rows = {row["run_id"]: row for row in csv.DictReader(file)}
    assert spent.keys() == rows.keys()
    for run_id, parts in spent.items():
        assert sum(parts.values()) == pytest.approx(float(rows[run_id]["wall_s"]), rel=0.005)
        assert {"start", "imports", "build", "compile", "warm_up", "steps", "shutdown"} <= {*parts}
        assert parts["imports"] < float(rows[run_id]["import_s"])
        assert 0 < float(rows[run_id]["goodput"]) < 1


def test_the_report_has_the_figures_with_their_captions(campaign):
    campaign.succeed("--report", "report.html")
    report = (campaign.folder / "report.html").read_text()
    for text in ("Weak scaling", "Training loss, mean over devices", "Scaling", "Learning"):
        assert text in report


@pytest.mark.ci
def test_tensorboard_gets_every_run_when_asked_for_and_not_with_all(campaign):
    assert not (campaign.folder / "results/tensorboard").exists()
    campaign.succeed("tensorboard")
    exported = (campaign.folder / "results/tensorboard").glob("*/events.out.tfevents.*")
    assert sorted(path.parent.name for path in exported) == campaign.ids()
    assert campaign.scheduled("--cores", "1", "tensorboard") == {}


@pytest.mark.slow
def test_repeats_are_added_until_the_interval_is_reached_and_none_is_done_again(fresh):
    study = {"matrix": [QUICK | {"model": "lenet5", "steps": 1500}], "figures": []}
    # So many, since on a busy machine one run is eight times as fast as another.
    repeats = {"target_interval": 0.99, "min": 3, "max": 16}
    fresh.configure(**study, repeats=repeats)
    fresh.succeed()
    records = {record["spec"].get("repeat", 1): record for record in all_records(fresh)}
    trained = [number for number, record in records.items() if record["status"] in TRAINED]
    assert sorted(records) == list(range(1, 17)) and 3 <= len(trained) < 16
    assert "target_interval is 99.00%" in records[16]["message"]
    assert fresh.scheduled() == {}
    fresh.configure(**study, repeats=repeats | {"target_interval": 1e-6})
    left = [record["run_id"] for record in records.values() if record["status"] == "skipped"]
    assert fresh.scheduled()["train"] == sorted(left)


def all_records(campaign):
    paths = (campaign.folder / "results/runs").glob("*/run.json")
    return [json.loads(path.read_text()) for path in paths]


def test_a_run_added_beside_a_busy_neighbour_is_tried_again_then_unstable_and_flagged(campaign):
    """The case for which neighbours are watched: a program that uses a core of a workstation."""
    added = {**QUICK, "name": "added", "model": "lenet5", "batch_per_device": 8, "steps": 3}
    campaign.configure(
        matrix=[STUDY["matrix"][0], added],
        compare=[{"field": "batch_per_device", "base": 4}],
        figures=[],
        wait_for_quiet_s=1,
        others_share=0.05,
    )
    # It leaves us the most of what it could take.
    line = ["nice", "-n", "5", sys.executable, "-S", "-c", "while True: pass"]
    neighbour = subprocess.Popen(line)
    try:
        printed = campaign.succeed()
    finally:
        neighbour.kill()
        neighbour.wait()
    assert printed.count("starts beside others, which use ") == 2
    assert printed.count("; it is tried again") == 1
    # A second try that is planned is no error of a rule.
    assert "RuleException" not in printed and "Trying to restart" not in printed
    assert "2 runs" not in printed and printed.count(": unstable (others used ") == 2
    assert ": ok" not in printed.partition("starts beside others")[2]
    record = json.loads(campaign.record("lenet5-synthetic-b8").read_text())
    assert record["status"] == "unstable", record["message"]
    assert record["message"].startswith("others used ")
    assert record["summary"]["disturbed"] in record["message"]
    # What the trainer and Snakemake used is none of it, nor can it be more than there is.
    assert 0.05 < record["summary"]["others_cpu_cores"] < 1.05 * record["summary"]["cores"]
    log = campaign.record("lenet5-synthetic-b8").with_name("train.attempt1.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "neighbours"
    disturbed = {row["run_id"]: row["disturbed"] for row in table(campaign, "runs")}
    assert [run for run, reason in disturbed.items() if reason] == [record["run_id"]]
    (compared,) = [row for row in table(campaign, "comparisons") if row["ratio"]]
    assert "neighbours, measured apart" in compared["base_flags"]
    assert campaign.scheduled() == {}


def table(campaign, name):
    with open(campaign.folder / f"results/tables/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))
