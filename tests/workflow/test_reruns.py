"""What is computed again, and what is not."""

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
from support.campaigns.campaign import STUDY, TRAINED, Campaign
from support.studies.site_facts import CONFIG

AFTER_RUNS = {"list_records", "collect_runs", "draw_figure"}
LIBRARY = "workflow_scripts/dlbench"
MODELS = f"{LIBRARY}/trainer/keras/models"
QUICK = STUDY["matrix"][0]


@pytest.mark.quick
def test_a_second_start_trains_runs_that_were_deleted_and_those_of_a_new_model_alone(fresh):
    both = {"dataset": "synthetic", "exclude": []}
    fresh.configure(matrix=[QUICK | both], figures=[])
    fresh.succeed()
    deleted, kept = fresh.ids()
    assert (deleted.partition("-")[0], kept.partition("-")[0]) == ("cnn12", "lenet5")
    assert {record["status"] for record in fresh.records().values()} <= set(TRAINED)
    assert fresh.scheduled() == {}

    shutil.rmtree(fresh.folder / "results/runs" / deleted)
    assert fresh.scheduled()["train"] == [deleted]

    shutil.copyfile(fresh.folder / MODELS / "lenet5.py", fresh.folder / MODELS / "mymodel.py")
    three = {"model": ["lenet5", "cnn12", "mymodel"]}
    fresh.configure(matrix=[QUICK | both | three], figures=["scaling"])
    jobs = fresh.scheduled()
    assert jobs["train"][0] == deleted and jobs["train"][1].startswith("mymodel-synthetic-")
    assert len(jobs["train"]) == 2 and set(jobs) == {"train"} | AFTER_RUNS
    before = read(fresh, kept)
    fresh.succeed()
    assert read(fresh, kept) == before
    rows = {row["run_id"]: row for row in fresh.rows()}
    assert sorted(rows) == [deleted, kept, jobs["train"][1]]
    assert all(float(row["images_per_second"]) > 0 for row in rows.values())
    # Each start that trains is a session.
    assert "" < rows[kept]["session"] < rows[deleted]["session"]
    assert (fresh.folder / "results/figures/scaling.svg").is_file()
    assert fresh.scheduled() == {}


def read(campaign, run_id):
    """{name: content} of a run's files."""
    places = (campaign.folder / "results/runs" / run_id).iterdir()
    return {path.name: path.read_bytes() for path in places if path.is_file()}


@pytest.mark.ci
def test_dates_and_lost_data_compute_nothing_and_another_figure_only_its_drawing(campaign):
    later = time.time() + 10
    for path in campaign.folder.rglob("*"):
        inside = path.relative_to(campaign.folder).parts[0]
        if path.is_file() and inside not in (".snakemake", "results"):
            os.utime(path, (later, later))
    shutil.rmtree(campaign.folder / "results/data")
    assert campaign.scheduled() == {}
    append(campaign, "drawing/figures/loss.py", "# changed")
    assert campaign.scheduled() == {"draw_figure": ["loss"]}


@pytest.mark.ci
def test_results_that_moved_behind_a_link_stay_and_what_is_missing_is_trained_there(
    campaign, tmp_path
):
    results, disk = campaign.folder / "results", tmp_path / "disk"
    results.rename(disk)
    results.symlink_to(disk)
    assert campaign.scheduled() == {}
    deleted, *_ = campaign.ids()
    shutil.rmtree(disk / "runs" / deleted)
    of_status = json.loads(campaign.dlbench("status", "--json"))["combinations"]
    assert (of_status["total"], of_status["pending"]) == (3, 1)
    campaign.succeed()
    assert results.is_symlink() and (disk / "runs" / deleted / "run.json").is_file()
    results.unlink()
    results.symlink_to(disk.rename(tmp_path / "moved"))
    assert campaign.scheduled() == {}


def test_two_studies_of_one_clone_lie_apart_by_the_option_directory(fresh, tmp_path):
    block = QUICK | {"dataset": "synthetic", "exclude": []}
    fresh.configure(matrix=[block | {"model": "lenet5"}], figures=[])
    apart = Campaign(tmp_path / "apart")
    apart.folder.mkdir()
    apart.configure(matrix=[block | {"model": "cnn12"}], figures=[])
    fresh.succeed()
    there = "--directory", str(apart.folder)
    fresh.succeed(*there)
    assert [run_id.partition("-")[0] for run_id in fresh.ids()] == ["lenet5"]
    assert [run_id.partition("-")[0] for run_id in apart.ids()] == ["cnn12"]
    assert fresh.scheduled() == fresh.scheduled(*there) == {}


def append(campaign, name, line="CHANGED = 1"):
    with open(campaign.folder / LIBRARY / name, "a") as file:
        file.write(f"\n{line}\n")


def edit(campaign, name, before, after):
    path = campaign.folder / LIBRARY / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.ci
def test_in_a_clone_with_the_results_what_cannot_change_a_run_trains_nothing(campaign, tmp_path):
    clone = campaign.copied(tmp_path / "clone")
    shutil.copytree(campaign.folder / "results", clone.folder / "results")
    for name in ("trainer/engine.py", "trainer/tensorflow/engine.py", "data/convert_dataset.py"):
        path = clone.folder / LIBRARY / name
        text = re.sub(r'^( *""")(?=\w)', r"\1Changed. ", path.read_text(), flags=re.MULTILINE)
        path.write_text(text.replace("\ndef ", "\n# new\ndef ") + "\n# changed\n")
        assert "# new" in text + path.read_text() and "Changed. " in text
    edit(clone, "data/datasets/digits.py", "package:sklearn", "https://example.org/sklearn")
    edit(clone, "data/datasets/digits.py", "Optical recognition", "Recognition")
    for name in ("machine/hardware.py", "trainer/tensorflow/strategies/mirrored.py"):
        append(clone, name)
    site = CONFIG["site"] | {"name": "elsewhere"}
    clone.configure(site=site)
    config = clone.folder / "config.yaml"
    config.write_text("# a comment\n" + config.read_text())
    assert set(clone.scheduled()) <= AFTER_RUNS
    assert "no run to train" in clone.output

    # What another repeat needs is there.
    clone.configure(site=site, repeats=2)
    jobs = clone.scheduled()
    assert len(jobs["train"]) == 3 and all("-r2-" in run for run in jobs["train"])
    assert not {"fetch_dataset", "convert_dataset"} & set(jobs)

    clone.configure(site=site)
    edit(clone, "data/datasets/digits.py", '"first_label": 0', '"first_label": 1')
    jobs = clone.scheduled()
    assert jobs["train"] == [campaign.run_id("lenet5-digits")]
    assert jobs["convert_dataset"] == ["digits"]
    edit(clone, "trainer/engine.py", "BATCH = 256", "BATCH = 255")
    assert clone.scheduled()["train"] == campaign.ids()
    assert f"since it was trained for study test: {LIBRARY}/trainer/engine.py\n" in clone.output


@pytest.mark.ci
def test_of_damaged_and_changed_runs_only_those_without_a_sound_log_are_trained_again(campaign):
    campaign.configure(figures=[])
    changed, foreign, corrupted = campaign.ids()  # cnn12, lenet5-digits, lenet5-synthetic
    folder = campaign.folder / "results/runs"
    good = campaign.records()[corrupted]
    wrong = json.loads(json.dumps(good))
    wrong["summary"]["images_per_second"] *= 2
    (folder / corrupted / "run.json").write_text(json.dumps(wrong))
    append(campaign, "trainer/keras/models/classic_cnn.py")
    before = (folder / changed / "train.jsonl").read_bytes()
    log = folder / foreign / "train.jsonl"
    whole, other = log.read_bytes(), (folder / corrupted / "train.jsonl").read_bytes()
    end = whole.index(b'{"event": "neighbours"')  # what comes after the end may be missing
    (folder / foreign / "run.json").unlink()
    for content in (b"", whole[: end // 2], whole[: end - 1], other):
        log.write_bytes(content)
        jobs = campaign.scheduled()
        assert (jobs["record_run"], jobs["train"]) == ([corrupted], [changed, foreign])
    assert log.read_bytes() == other  # looking moves nothing

    output = campaign.succeed()
    why = "train.jsonl is the log of lenet5-synthetic-.*; kept as .*attempt1"
    assert re.search(f"^{foreign}: .*{why}", output, re.MULTILINE), output
    for run_id, content in ((changed, before), (foreign, other)):
        assert (folder / run_id / "train.attempt1.jsonl").read_bytes() == content
        assert campaign.records()[run_id]["run_id"] == run_id
    assert campaign.records()[corrupted]["summary"] == good["summary"]
    assert campaign.scheduled() == {}

    # What has the size that it should have is found when tables are made.
    log = folder / corrupted / "train.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"warm_up": false', b'"warm_up":  true', 1))
    (campaign.folder / "results/tables/runs.parquet").unlink()
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert f"{corrupted}/train.jsonl: changed after its record was written" in finished.stdout
    assert "1 run forgotten, the logs kept aside" in finished.stdout
    assert campaign.scheduled()["train"] == [corrupted]


def test_records_are_read_and_collected_again_where_they_or_what_reads_them_change(campaign):
    path = campaign.record("cnn12-")
    record = run_record.read(path) | {"message": "read again"}
    files.write_json(path, record | {"record_sha256": run_record.digest(record)})
    later = time.time() + 10
    os.utime(path, (later, later))
    assert set(campaign.scheduled()) == AFTER_RUNS

    campaign.configure(figures=[])
    logs = {path: path.read_bytes() for path in campaign.folder.rglob("train.jsonl")}
    code = campaign.folder / LIBRARY / "records/run_record.py"
    code.write_text(re.sub(r"(PARSER_VERSION) = \d+", r"\1 = 99", code.read_text()))
    jobs = campaign.scheduled()
    assert jobs["record_run"] == campaign.ids() and "train" not in jobs
    campaign.succeed()
    assert {record["parser_version"] for record in campaign.records().values()} == {99}
    assert {path: path.read_bytes() for path in campaign.folder.rglob("train.jsonl")} == logs
    assert campaign.scheduled() == {}


def test_what_stands_is_trained_again_where_it_is_forced_and_its_command_can_be_shown(campaign):
    for arguments in (["--forcerun", "train"], ["--forceall"]):
        assert campaign.scheduled(*arguments)["train"] == campaign.ids(), arguments
        assert "3 runs to train again: the command line asks for it" in campaign.output
        assert "cost: 3 runs to train, about " in campaign.output
    one = campaign.record("cnn12-").relative_to(campaign.folder)
    command = "exec python workflow_scripts/start_run.py --log results/runs/cnn12-"
    assert campaign.scheduled("--force", str(one))["train"] == [one.parent.name]
    assert command not in campaign.output
    assert campaign.scheduled("--force", str(one), "--printshellcmds")
    assert command in campaign.output


def test_runs_added_later_come_with_sentinels_which_no_later_start_trains_again(fresh):
    block = {"name": "short", "model": "lenet5", "dataset": "synthetic", "warmup_steps": 1}
    block |= {"steps": 2, "batch_per_device": 4}
    settings = {"repeats": 2, "sentinels": 1, "figures": []}
    fresh.configure(matrix=[block], **settings)
    fresh.succeed("runs")
    finished, started = fresh.ids(), sessions(fresh)

    fresh.configure(matrix=[block | {"batch_per_device": [4, 8]}], **settings)
    trained = fresh.scheduled()["train"]
    repeated = [run for run in trained if is_sentinel(run)]
    assert len(trained) == 4
    assert [run.split("-")[2:6] for run in repeated] == [["b4", "single", "1x1", "s1"]] * 2
    assert re.search(
        r"^sentinels: 2 runs repeat finished ones among the new, about \S+ node-hours, \d+% of "
        r"the session: lenet5 synthetic batch 4, single on 1 device \(2 repeats\)$",
        fresh.output,
        re.MULTILINE,
    ), fresh.output
    assert sessions(fresh) == started
    fresh.succeed()
    assert fresh.ids() == sorted([*finished, *trained])
    (last,) = sessions(fresh) - started
    rows = fresh.rows()
    assert [row["run_id"] for row in rows if row["apart"] == "sentinel"] == sorted(repeated)
    assert sum(row["session"] == last for row in rows) == 4
    assert fresh.scheduled() == {}

    shutil.rmtree(fresh.folder / "results/runs" / repeated[0])
    assert fresh.scheduled() == {}
    (lost,) = [run for run in trained if "-b8-" in run and "-r1-" in run]
    shutil.rmtree(fresh.folder / "results/runs" / lost)
    again = fresh.scheduled()["train"]
    assert len(again) == 3 and lost in again
    assert all("-b4-single-1x1-s2-r" in run for run in again if run != lost)


def sessions(campaign):
    paths = (campaign.folder / "results/sessions").glob("*.json")
    return {path.stem for path in paths} - {"current"}


def test_a_store_of_converted_data_is_used_where_it_lies(campaign, tmp_path):
    """Others converted by the same code: nothing is fetched, converted or trained again."""
    (campaign.folder / "results/data").rename(tmp_path / "store")
    data = yaml.safe_load((campaign.folder / "config.yaml").read_text())["data"]
    campaign.configure(data=data | {"store": str(tmp_path / "store")}, repeats=2)
    jobs = campaign.scheduled()
    assert len(jobs["train"]) == 3 and all("-r2-" in run for run in jobs["train"])
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
