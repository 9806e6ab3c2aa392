"""docs/adding.md: a run of the things that the page adds is trained and drawn."""

import json

import adding_page


def test_a_run_of_things_that_the_docs_add_is_trained_and_drawn(fresh):
    adding_page.write(fresh.folder)
    block = {
        "name": "added", "model": "mlp", "dataset": "stripes", "strategy": "mirrored_one",
        "launcher": "nice", "batch_per_device": [8, 16], "warmup_steps": 1, "epochs": 2,
        "must_reach": {"top1": 0.6},
    }  # fmt: skip
    fresh.configure(matrix=[block], model_folder="my_models", figures=["memory"])
    fresh.succeed()
    for batch in (8, 16):
        record = json.loads(fresh.record(f"mlp-stripes-b{batch}-mirrored_one-1x1-").read_text())
        assert record["status"] in ("ok", "unstable"), record["message"]
        assert record["summary"]["top1"] > 0.6
        assert record["provenance"]["command"][:3] == ["nice", "-n", "5"]
    assert "bytes" in (fresh.folder / "results/figures/memory.svg").read_text()
    assert fresh.scheduled() == {}
