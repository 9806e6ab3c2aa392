"""What is computed again, and what is not."""

import csv
import json
import os
import re
import shutil
import time

import pytest
import yaml

from dlbench.common import files
from dlbench.records import run_record
from dlbench.study.runs import is_sentinel
from support.campaigns.campaign import STUDY, Campaign
from support.studies.site_facts import CONFIG

AFTER_RUNS = {"list_records", "collect_runs", "draw_figure"}
ALL_RUNS = ["cnn12-synthetic", "lenet5-digits", "lenet5-synthetic"]


def trained_runs(jobs):
    return jobs.get("train", [])


@pytest.mark.quick
def test_a_second_run_does_nothing(campaign):
    assert campaign.scheduled() == {}


@pytest.mark.quick
def test_adding_a_model_trains_only_its_runs(campaign):
    models = campaign.folder / "workflow_scripts/dlbench/trainer/keras/models/convolutional"
    shutil.copyfile(models / "lenet5.py", models / "mymodel.py")
    block = STUDY["matrix"][0] | {"model": ["lenet5", "cnn12", "mymodel"]}
    study = {"compare": [{"field": "model", "base": "lenet5"}], "figures": ["scaling"]}
    campaign.configure(matrix=[block], **study)
    before = campaign.ids()
    jobs = campaign.scheduled()
    assert [run.partition("-")[0] for run in trained_runs(jobs)] == ["mymodel", "mymodel"]
    assert set(jobs) == {"train"} | AFTER_RUNS
    campaign.succeed()
    assert len(set(campaign.ids()) - set(before)) == 2
    with open(campaign.folder / "results/tables/runs.csv", newline="") as file:
        sessions = {row["run_id"]: row["session"] for row in csv.DictReader(file)}
    (first,), (second,) = (
        {session for run, session in sessions.items() if (run in before) == old}
        for old in (True, False)
    )
    assert "" < first < second  # each start that trains is one; reading and drawing is none
    kept = {path.stem for path in (campaign.folder / "results/sessions").iterdir()}
    assert kept == {"current", first, second}
    with open(campaign.folder / "results/tables/comparisons.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    apart = {(row["condition"], row["dataset"]): row["measured_apart"] for row in rows}
    assert apart == {
        ("cnn12", "synthetic"): "false",
        ("mymodel", "synthetic"): "true",
        ("mymodel", "digits"): "true",
    }
    flagged = {row["condition"] for row in rows if "measured apart" in row["base_flags"]}
    assert flagged == {"mymodel"}
    assert campaign.scheduled() == {}


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize("target", ["all", "tables", "runs"])
def test_adding_a_repeat_trains_only_the_new_runs(campaign, target):
    campaign.configure(repeats=2)
    jobs = campaign.scheduled("--cores", "1", target)
    assert len(trained_runs(jobs)) == 3
    assert all("-r2-" in run for run in trained_runs(jobs))


@pytest.mark.quick
def test_a_deleted_run_is_trained_again_and_no_other(campaign):
    run = campaign.run_id("cnn12-")
    shutil.rmtree(campaign.folder / "results/runs" / run)
    assert campaign.scheduled()["train"] == [run]


def test_a_dry_run_shows_the_commands_of_runs_where_it_is_asked_to(campaign):
    shutil.rmtree(campaign.record("cnn12-").parent)
    command = "exec python workflow_scripts/start_run.py --log results/runs/cnn12-"
    dry_run = ("-n", "--quiet", "progress")
    assert command in campaign.succeed(*dry_run, "--printshellcmds")
    assert command not in campaign.succeed(*dry_run)


@pytest.mark.ci
def test_a_deleted_record_is_read_again_from_its_log(campaign):
    record = campaign.record("cnn12-")
    record.unlink()
    jobs = campaign.scheduled()
    assert jobs["read_run"] == [record.parent.name]
    assert "train" not in jobs


def corrupt(record):
    content = json.loads(record.read_text())
    content["summary"]["images_per_second"] *= 2
    record.write_text(json.dumps(content))


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "damage",
    [lambda r: r.write_bytes(r.read_bytes()[:100]), corrupt, lambda r: r.write_bytes(b"")],
    ids=["truncated", "corrupted by hand", "emptied"],
)
def test_a_damaged_record_is_made_again_and_no_other(campaign, damage):
    campaign.configure(figures=[])
    record = campaign.record("lenet5-synthetic")
    good = json.loads(record.read_text())
    damage(record)
    jobs = campaign.scheduled()
    assert jobs["read_run"] == [record.parent.name]
    assert "train" not in jobs
    campaign.succeed()
    assert json.loads(record.read_text())["summary"] == good["summary"]
    assert campaign.scheduled() == {}


def test_records_of_another_parser_are_read_again_and_no_run_is_trained(campaign):
    campaign.configure(figures=[])
    before = {run: campaign.record(run) for run in campaign.ids()}
    logs = {run: record.with_name("train.jsonl").read_bytes() for run, record in before.items()}
    code = campaign.folder / "workflow_scripts/dlbench/records/run_record.py"
    code.write_text(re.sub(r"(PARSER_VERSION) = \d+", r"\1 = 99", code.read_text()))
    jobs = campaign.scheduled()
    assert sorted(jobs["read_run"]) == sorted(campaign.ids())
    assert "train" not in jobs
    campaign.succeed()
    for run, record in before.items():
        assert json.loads(record.read_text())["parser_version"] == 99
        assert record.with_name("train.jsonl").read_bytes() == logs[run]
    assert campaign.scheduled() == {}


@pytest.mark.ci
def test_a_truncated_log_is_trained_again_and_no_other(campaign):
    log = campaign.record("lenet5-digits").with_name("train.jsonl")
    log.write_bytes(log.read_bytes()[:-200])
    jobs = campaign.scheduled()
    assert jobs["train"] == [log.parent.name]


@pytest.mark.ci
def test_logs_of_another_run_are_kept_aside_and_the_run_is_trained_again(campaign):
    campaign.configure(figures=[])
    wrong, lost, other = (
        campaign.record(name).with_name("train.jsonl")
        for name in ("cnn12-", "lenet5-digits", "lenet5-synthetic")
    )
    foreign = other.read_bytes()
    for log in (wrong, lost):
        log.write_bytes(foreign)
    lost.with_name("run.json").unlink()
    jobs = campaign.scheduled()
    assert jobs["train"] == sorted([wrong.parent.name, lost.parent.name])
    assert "read_run" not in jobs
    assert wrong.read_bytes() == foreign  # looking moves nothing
    output = campaign.succeed()
    for log in (wrong, lost):
        why = "train.jsonl is the log of lenet5-synthetic-.*; kept as .*attempt1"
        assert re.search(f"^{log.parent.name}: .*{why}", output, re.MULTILINE), output
        assert log.with_name("train.attempt1.jsonl").read_bytes() == foreign != log.read_bytes()
        assert json.loads(log.with_name("run.json").read_text())["run_id"] == log.parent.name
    assert campaign.scheduled() == {}

    # Of the same size it is found when tables are made.
    other.write_bytes(foreign.replace(b'"status": "ok"', b'"status": "OK"'))
    (campaign.folder / "results/tables/runs.parquet").unlink()
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert "train.jsonl: changed after its record was written" in finished.stdout
    assert "1 run forgotten, the logs kept aside" in finished.stdout
    assert campaign.scheduled()["train"] == [other.parent.name]


@pytest.mark.slow
def test_runs_added_later_come_with_sentinels_which_no_later_start_trains_again(fresh):
    block = {"name": "short", "model": "lenet5", "dataset": "synthetic", "warmup_steps": 1}
    block |= {"steps": 2, "batch_per_device": 4}
    settings = {"repeats": 2, "sentinels": 1, "figures": []}
    fresh.configure(matrix=[block], **settings)
    fresh.succeed("runs")
    finished, started = fresh.ids(), sessions(fresh)

    fresh.configure(matrix=[block | {"batch_per_device": [4, 8]}], **settings)
    trained = trained_runs(fresh.scheduled())
    repeated = [run for run in trained if is_sentinel(run)]
    assert (
        len(trained) == 4
        and [run.split("-")[2:6] for run in repeated] == [["b4", "single", "1x1", "s1"]] * 2
    )
    assert re.search(
        r"^sentinels: 2 runs repeat finished ones among the new, about \S+ node-hours, \d+% of "
        r"the session: lenet5 synthetic batch 4, single on 1 device \(2 repeats\)$",
        fresh.output,
        re.MULTILINE,
    ), fresh.output
    assert sessions(fresh) == started
    fresh.succeed()
    assert fresh.ids() == sorted([*finished, *trained])
    assert len(sessions(fresh)) == len(started) + 1
    of_run, of_sentinel = (
        (fresh.folder / f"results/tables/{name}.csv").read_text() for name in ("runs", "sentinels")
    )
    assert all(run in of_sentinel and run not in of_run for run in repeated)
    (last,) = sessions(fresh) - started
    assert of_sentinel.count(last) == of_run.count(last) == 2
    assert fresh.scheduled() == {}

    shutil.rmtree(fresh.folder / "results/runs" / repeated[0])
    assert fresh.scheduled() == {}
    (lost,) = [run for run in trained if "-b8-" in run and "-r1-" in run]
    shutil.rmtree(fresh.folder / "results/runs" / lost)
    again = trained_runs(fresh.scheduled())
    assert len(again) == 3 and lost in again
    assert all("-b4-single-1x1-s2-r" in run for run in again if run != lost)


def sessions(campaign):
    """The ids of the sessions that were begun."""
    paths = (campaign.folder / "results/sessions").glob("*.json")
    return {path.stem for path in paths} - {"current"}


@pytest.mark.ci
def test_touching_every_file_computes_nothing(campaign):
    later = time.time() + 10
    for path in campaign.folder.rglob("*"):
        inside = path.relative_to(campaign.folder).parts[0]
        if path.is_file() and inside not in (".snakemake", "results", ".git"):
            os.utime(path, (later, later))
    assert campaign.scheduled() == {}


def test_a_record_that_takes_the_place_of_another_is_collected_and_nothing_is_trained(campaign):
    path = campaign.record("cnn12-")
    later = time.time() + 10
    os.utime(path, (later, later))
    assert campaign.scheduled() == {}  # it is the same
    record = run_record.read(path) | {"message": "read again"}
    files.write_json(path, record | {"record_sha256": run_record.digest(record)})
    os.utime(path, (later, later))
    assert set(campaign.scheduled()) == AFTER_RUNS


def test_what_stands_is_trained_again_where_it_is_forced(campaign):
    for arguments in (["--forcerun", "train"], ["--forceall"]):
        assert campaign.scheduled(*arguments)["train"] == campaign.ids(), arguments
        count = len(campaign.ids())
        assert f"{count} runs to train again: the command line asks for it" in campaign.output
        assert f"cost: {count} runs to train, about " in campaign.output
    one = campaign.record("cnn12-").relative_to(campaign.folder)
    assert campaign.scheduled("--force", str(one))["train"] == [one.parent.name]
    assert "cost: 1 run to train, about " in campaign.output


@pytest.mark.ci
def test_a_fresh_clone_with_the_results_alone_trains_nothing(campaign, tmp_path):
    clone = Campaign.fresh(tmp_path / "clone")
    shutil.copytree(campaign.folder / "results", clone.folder / "results")
    jobs = clone.scheduled()
    assert set(jobs) <= AFTER_RUNS


@pytest.mark.ci
def test_deleting_the_data_trains_nothing(campaign):
    shutil.rmtree(campaign.folder / "results/data")
    assert campaign.scheduled() == {}


@pytest.mark.ci
def test_editing_a_figure_draws_it_alone(campaign):
    figure = campaign.folder / "workflow_scripts/dlbench/figures/learning/loss.py"
    figure.write_text(figure.read_text() + "\n# changed\n")
    assert campaign.scheduled() == {"draw_figure": ["loss"]}


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("edited", "trains"),
    [
        ("dlbench/trainer/keras/models/convolutional/cnn12.py", ["cnn12-synthetic"]),
        ("dlbench/data/datasets/digits.py", ["lenet5-digits"]),
        ("dlbench/trainer/loop.py", ALL_RUNS),
        ("dlbench/trainer/tensorflow/step.py", ALL_RUNS),
        ("dlbench/trainer/tensorflow/strategies/single.py", ALL_RUNS),
        ("dlbench/trainer/tensorflow/strategies/mirrored.py", []),
        ("dlbench/records/parse_run.py", []),
    ],
)
def test_editing_code_trains_exactly_the_runs_that_execute_it(campaign, edited, trains):
    path = campaign.folder / "workflow_scripts" / edited
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    runs = trained_runs(campaign.scheduled())
    assert sorted("-".join(run.split("-")[:2]) for run in runs) == trains
    why = f"changed since it was trained: workflow_scripts/{edited}\n"
    assert (why in campaign.output) == bool(trains), campaign.output


@pytest.mark.ci
def test_comments_and_docstrings_train_and_convert_nothing_again_and_a_number_does(campaign):
    library = campaign.folder / "workflow_scripts/dlbench"
    for name in ("trainer/engine.py", "trainer/tensorflow/engine.py", "data/convert_dataset.py"):
        text = re.sub(r'^( *""")(?=\w)', r"\1Changed. ", (library / name).read_text(), flags=re.M)
        (library / name).write_text(text.replace("\ndef ", "\n# new\ndef ") + "\n# changed\n")
    campaign.configure(figures=[])
    assert not {"train", "convert_dataset"} & set(campaign.scheduled())
    assert "no run to train" in campaign.output
    engine = library / "trainer/engine.py"
    text = engine.read_text()
    assert "BATCH = 256" in text and text.count("# new") > 5 and text.count("Changed. ") > 9
    engine.write_text(text.replace("BATCH = 256", "BATCH = 255"))
    assert len(trained_runs(campaign.scheduled())) == 3


def test_a_change_of_what_is_only_described_trains_and_converts_nothing_again(campaign):
    library = campaign.folder / "workflow_scripts/dlbench"
    digits = library / "data/datasets/digits.py"
    text = digits.read_text()
    for before, after in (
        ("package:sklearn", "https://example.org/sklearn"),
        ("Optical recognition", "Recognition"),
    ):
        assert before in text
        text = text.replace(before, after)
    digits.write_text(text)
    for name in ("machine/hardware.py", "machine/facts.py", "images/oci.py"):
        with open(library / name, "a") as file:
            file.write("\nCHANGED = 1\n")
    assert set(campaign.scheduled()) <= AFTER_RUNS
    assert "no run to train" in campaign.output
    # A run more needs the data, which stands.
    campaign.configure(repeats=2)
    jobs = campaign.scheduled()
    assert len(trained_runs(jobs)) == 3 and all("-r2-" in run for run in jobs["train"])
    assert not {"fetch_dataset", "convert_dataset"} & set(jobs)
    # What can change a number still does: here how records are read.
    digits.write_text(text.replace('"first_label": 0', '"first_label": 1'))
    jobs = campaign.scheduled()
    (again,) = (run for run in jobs["train"] if "-r2-" not in run)
    assert again.startswith("lenet5-digits") and jobs["convert_dataset"] == ["digits"]
    shutil.rmtree(campaign.folder / ".snakemake")  # as in a copy
    assert campaign.scheduled()["convert_dataset"] == ["digits"]


@pytest.mark.ci
def test_site_facts_and_comments_train_nothing(campaign):
    campaign.configure(site=CONFIG["site"] | {"name": "elsewhere"})
    config = campaign.folder / "config.yaml"
    config.write_text("# a comment\n" + config.read_text())
    jobs = campaign.scheduled()
    assert set(jobs) <= AFTER_RUNS


@pytest.mark.ci
def test_a_store_of_converted_data_is_used_where_it_lies(campaign, tmp_path):
    """Others converted by the same code: nothing is fetched, converted or trained again."""
    (campaign.folder / "results/data").rename(tmp_path / "store")
    data = yaml.safe_load((campaign.folder / "config.yaml").read_text())["data"]
    campaign.configure(data=data | {"store": str(tmp_path / "store")})
    assert not trained_runs(campaign.scheduled())
    campaign.configure(data=data | {"store": str(tmp_path / "store")}, repeats=2)
    jobs = campaign.scheduled()
    assert jobs["adopt_dataset"] == ["digits"]
    assert not {"fetch_dataset", "convert_dataset"} & set(jobs)
    campaign.succeed("data")
    manifest = json.loads((campaign.folder / "results/data/digits/manifest.json").read_text())
    assert manifest["folder"] == str(tmp_path / "store/digits")
    shutil.rmtree(campaign.folder / "results/data")
    (tmp_path / "store/digits/train-00000-of-00004").unlink()
    finished = campaign.snakemake("data")
    assert finished.returncode != 0
    assert "train-00000-of-00004: missing" in finished.stdout
