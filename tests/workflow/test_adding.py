"""docs/adding.md: a run of the things that the page adds is trained and drawn."""

import json

import pytest
import yaml

from support.project import adding_page


@pytest.mark.slow
def test_a_run_of_things_that_the_docs_add_is_trained_and_drawn(fresh):
    adding_page.write(fresh.folder)
    block = {
        "name": "added", "model": "mlp", "dataset": "stripes", "strategy": "mirrored_one",
        "launcher": "nice", "batch_per_device": [8, 16], "warmup_steps": 1, "epochs": 2,
        "must_reach": {"top1": 0.6},
    }  # fmt: skip
    own = {"batch_per_device": 8, "warmup_steps": 1, "epochs": 2}
    readings = own | {"name": "table", "model": "mlp", "dataset": "readings"}
    photos = own | {"name": "photographs", "model": "cnn12", "dataset": "photos"}
    adding_page.write_sources(fresh.folder / "own_data")
    data = yaml.safe_load((fresh.folder / "config.yaml").read_text())["data"]
    fresh.configure(
        matrix=[block, readings | {"must_reach": {"top1": 0.9}}, photos],
        data=data | {"manual_dir": "own_data"},
        model_folder="my_models",
        figures=["resident_set"],
    )
    fresh.succeed()
    for run, items in (("mlp-readings", 160), ("cnn12-photos", 40)):
        record = json.loads(fresh.record(f"{run}-b8-").read_text())
        assert record["status"] in ("ok", "unstable"), record["message"]
        assert record["summary"]["steps_measured"] == items // 8  # of the second epoch
        assert run != "mlp-readings" or record["summary"]["top1"] > 0.9
    for batch in (8, 16):
        record = json.loads(fresh.record(f"mlp-stripes-b{batch}-mirrored_one-1x1-").read_text())
        assert record["status"] in ("ok", "unstable"), record["message"]
        assert record["summary"]["top1"] > 0.6
        command = record["provenance"]["command"]
        nice = command.index("nice")
        assert command[nice : nice + 3] == ["nice", "-n", "5"]
    assert "bytes" in (fresh.folder / "results/figures/resident_set.svg").read_text()
    assert fresh.scheduled() == {}
