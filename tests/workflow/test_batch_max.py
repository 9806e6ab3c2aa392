"""`batch_per_device: max` on the real Snakefile: the batch is found once, before its runs."""

import json
import shutil

import pytest

from dlbench.starting import find_batch
from support.machines.paths import REPOSITORY
from support.studies.site_facts import CONFIG

MEMORY_MB = 1000  # for a job on this node
BLOCK = {
    "name": "widest", "model": "wide", "dataset": "synthetic", "batch_per_device": "max",
    "steps": 2, "warmup_steps": 1,
}  # fmt: skip
AFTER = {"list_records", "collect_runs", "draw_figure", "make_environment"}


def ask(campaign, memory_mb):
    """Configure a study whose only block asks for the largest batch within some memory."""
    site = CONFIG["site"] | {"memory_mb_per_node": memory_mb}
    campaign.configure(
        matrix=[BLOCK], repeats=2, figures=["coverage"], model_folder="own", site=site
    )


def found(campaign):
    """(path, content) of what the only search found."""
    (path,) = campaign.folder.glob("results/batches/*/found.json")
    return path, json.loads(path.read_text())


@pytest.fixture
def campaign(fresh):
    (fresh.folder / "own").mkdir()
    model = REPOSITORY / "tests/support/trainers/wide_model.py"
    shutil.copy(model, fresh.folder / "own/wide.py")
    return fresh


def test_the_largest_batch_is_found_once_by_recorded_tries_and_all_repeats_have_it(campaign):
    ask(campaign, MEMORY_MB)
    # Before the search it is named, and tables wait for it.
    (search,) = campaign.scheduled()["find_batch"]
    assert set(campaign.scheduled()) <= {"find_batch"} | AFTER
    assert "largest batch of wide synthetic, single on 1 device" in campaign.output
    (one,) = json.loads(campaign.dlbench("status", "--json"))["largest_batches"]
    assert (one["search"], one["state"], one["tries"]) == (search, "to find", 0)
    table = campaign.scheduled("--cores", "1", "results/tables/runs.parquet")
    assert table["find_batch"] == [search]

    campaign.succeed("all", "archive")
    path, content = found(campaign)
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
    ids = campaign.ids()
    assert len(ids) == 2 and all(f"-b{batch}-" in run_id for run_id in ids)
    # Tries are in their own table alone.
    for name in ("runs", "coverage"):
        assert sorted(row["run_id"] for row in campaign.rows(name)) == ids
    assert {row["batch_found"] for row in campaign.rows()} == {"true"}
    tried = [row["batch_per_device"] for row in campaign.rows("tries")]
    assert tried == [str(number) for number in tries]
    again = campaign.dlbench("rederive", "results/archive.zip", "--output=again")
    assert again.startswith("identical: ")

    assert campaign.scheduled() == {}
    shutil.rmtree(campaign.folder / "results/runs" / ids[0])
    jobs = campaign.scheduled()
    assert jobs["train"] == ids[:1] and "find_batch" not in jobs
