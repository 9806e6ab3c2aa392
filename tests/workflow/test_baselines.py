"""`snakemake baselines`: measured once, in a table and a figure, and beside points of scaling."""

import json

from support.campaigns.campaign import Campaign

BLOCK = {
    "name": "two", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip
TWO = {"strategy": "multiworker", "devices_per_node": 2}


def test_baselines_are_measured_once_without_training_and_then_beside_the_runs(fresh: Campaign):
    blocks = [BLOCK | {"name": "one"}, BLOCK | TWO]
    fresh.configure(matrix=blocks, figures=["scaling"])
    fresh.succeed("baselines")
    assert not (fresh.folder / "results/runs").exists()
    found = fresh.rows("baselines")
    exchanges = [row for row in found if row["measure"] == "all_reduce"]
    assert {row["strategy"] for row in exchanges} == {"multiworker"}
    assert min(int(row["size_bytes"]) for row in exchanges) == 1024
    assert {row["measure"] for row in found} > {"matrix_product", "memory_copy", "file_read_warm"}
    assert (fresh.folder / "results/figures/communication.svg").is_file()
    kept = {path: path.read_bytes() for path in files(fresh)}
    assert len(kept) == 2

    assert fresh.scheduled("--cores", "1", "baselines") == {}
    # Not asked for, they are not measured: neither for the study nor for its figures.
    assert "measure_baseline" not in fresh.scheduled()
    fresh.succeed()
    fresh.succeed("report")
    assert "dotted: predicted" in (fresh.folder / "results/figures/scaling.svg").read_text()
    assert fresh.scheduled("--cores", "1", "report") == {}

    # What is lost is measured again, and no run is trained for it.
    first = min(kept)
    first.unlink()
    assert set(fresh.scheduled("--cores", "1", "baselines")) == {
        "measure_baseline", "collect_baselines", "draw_figure", "baselines",
    }  # fmt: skip
    fresh.succeed("baselines")
    assert files(fresh) == set(kept)
    assert json.loads(first.read_text())["rows"]
    assert {path: path.read_bytes() for path in kept if path != first}.items() <= kept.items()
    # Figures and the report that show them are made again.
    assert {"draw_figure", "build_report"} <= set(fresh.scheduled("--cores", "1", "report"))


def files(campaign):
    return set((campaign.folder / "results/baselines").rglob("*.json"))
