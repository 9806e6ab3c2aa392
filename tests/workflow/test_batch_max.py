"""`batch_per_device: max` on the real Snakefile: the batch is found once, before its runs."""

import csv
import json
import shutil
import subprocess
import sys

import pytest
import yaml

from dlbench.starting import find_batch
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.slow  # each search trains several times
MEMORY_MB = 1000  # for a job on this node
BLOCK = {
    "name": "widest",
    "model": "wide",
    "dataset": "synthetic",
    "batch_per_device": "max",
    "steps": 2,
    "warmup_steps": 1,
}


def ask(campaign, memory_mb=MEMORY_MB, **changes):
    """Configure a study whose only block asks for the largest batch within some memory."""
    (campaign.folder / "own").mkdir(exist_ok=True)
    source = REPOSITORY / "tests/support/trainers/wide_model.py"
    shutil.copy(source, campaign.folder / "own/wide.py")
    campaign.configure(
        matrix=[BLOCK | changes], repeats=2, figures=["coverage"], model_folder="own"
    )
    path = campaign.folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["site"]["memory_mb_per_node"] = memory_mb
    path.write_text(yaml.safe_dump(config))


def found(campaign):
    """(path, content) of what the only search found."""
    (path,) = campaign.folder.glob("results/batches/*/found.json")
    return path, json.loads(path.read_text())


@pytest.fixture(scope="module")
def searched(tmp_path_factory, trained):
    """A campaign that found its largest batch and trained its runs."""
    campaign = trained.copied(tmp_path_factory.mktemp("searched") / "project")
    ask(campaign)
    campaign.output = campaign.succeed()
    return campaign


def test_the_largest_batch_that_fits_is_found_by_recorded_tries_and_all_repeats_have_it(searched):
    path, content = found(searched)
    batch = content["batch_per_device"]
    tries = {one["batch_per_device"]: one for one in content["tries"]}
    assert list(tries)[:3] == [1, 2, 4] and 4 <= batch < 200
    assert content["node_memory_bytes"] == MEMORY_MB * 2**20
    assert tries[batch]["fits"]
    limit = 1 - find_batch.RESERVE
    for number, one in tries.items():
        record = json.loads((path.parent / f"b{number}/run.json").read_text())
        held = record["summary"]["peak_memory_bytes"] / (MEMORY_MB * 2**20)
        assert one["share_of_memory"] == pytest.approx(held)
        assert one["fits"] == (held <= limit) and held < 1
    ids = searched.ids()
    assert len(ids) == 2 and all(f"-b{batch}-" in run_id for run_id in ids)


def rows(campaign, name):
    with open(campaign.folder / f"results/tables/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_tries_are_in_the_table_of_tries_alone_and_runs_say_that_their_batch_was_found(searched):
    for name in ("runs", "coverage"):
        assert sorted(row["run_id"] for row in rows(searched, name)) == searched.ids()
    assert {row["batch_found"] for row in rows(searched, "runs")} == {"true"}
    _, content = found(searched)
    tried = [str(one["batch_per_device"]) for one in content["tries"]]
    assert [row["batch_per_device"] for row in rows(searched, "tries")] == tried


def test_a_second_start_searches_and_trains_nothing(searched):
    assert searched.scheduled() == {}


def test_a_run_that_is_deleted_is_trained_with_the_batch_that_was_found(searched, tmp_path):
    campaign = searched.copy(tmp_path / "project")
    shutil.rmtree(campaign.folder / "results/runs" / campaign.ids()[0])
    assert len(campaign.scheduled()["train"]) == 1
    assert "find_batch" not in campaign.scheduled()


def test_where_not_even_one_item_fits_the_combination_is_excluded_with_the_reason(
    trained, tmp_path
):
    campaign = trained.copied(tmp_path / "project")
    ask(campaign, memory_mb=100)
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert "not even a batch of 1 fits into memory: batch 1 holds" in finished.stdout
    _, content = found(campaign)
    assert content["batch_per_device"] is None and len(content["tries"]) == 1
    assert not (campaign.folder / "results/runs").exists()


def test_before_the_search_a_dry_run_and_the_status_name_it_and_tables_wait_for_it(
    trained, tmp_path
):
    campaign = trained.copied(tmp_path / "project")
    ask(campaign)
    (search,) = campaign.scheduled()["find_batch"]
    after = {"list_records", "collect_runs", "draw_figure"}
    assert set(campaign.scheduled()) <= {"find_batch", "make_environment"} | after
    assert "largest batch of wide synthetic, single on 1 device" in campaign.output
    status = subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "status", "--json"],
        cwd=campaign.folder, text=True, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    (one,) = json.loads(status.stdout)["largest_batches"]
    assert (one["search"], one["state"], one["tries"]) == (search, "to find", 0)
    assert campaign.scheduled("--cores", "1", "results/tables/runs.parquet")["find_batch"] == [
        search
    ]


def test_the_archive_knows_the_batch_and_makes_the_same_tables_again(searched, tmp_path):
    campaign = searched.copy(tmp_path / "project")
    campaign.succeed("archive")
    again = subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "rederive", "results/archive.zip",
         "--output=again"],
        cwd=campaign.folder, text=True, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert again.stdout.startswith("identical: ")
