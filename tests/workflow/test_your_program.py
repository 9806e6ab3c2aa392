"""Programs that log with dlbench_log.py: the page that shows one, and what a run of one has."""

import json

import pytest
import yaml

from support.campaigns.campaign import TRAINED
from support.project import your_program_page
from support.studies.site_facts import CONFIG

PROGRAM = """
import dlbench_log, time

log = dlbench_log.Log(model_flops_per_item=2e9, total_steps=24, item_shape="8x8x1")
for epoch in (1, 2):
    log.epoch(epoch)
    for number in log.data(range(12)):
        with log.step():
            time.sleep(0.01)
            log.loss(1 / (epoch + number))
    log.evaluation(loss=0.5, top1=0.4 * epoch)
    with log.checkpoint():
        time.sleep(0.05)
log.metric("answer", 42)
"""
LOGGED = {
    "name": "logged", "trainer": "logged", "framework": "python", "model": "none",
    "dataset": "noise", "batch_per_device": 8, "warmup_steps": 4, "steps": 20,
    "evaluate": "yes", "must_reach": {"top1": 0.7, "final_loss": 0.2},
}  # fmt: skip


@pytest.mark.ci
def test_the_page_leads_from_a_script_to_a_speedup_and_a_log_has_all_that_ours_has(fresh):
    your_program_page.write(fresh.folder)
    assert 1 <= len(your_program_page.added_lines(fresh.folder)) <= 5
    config = your_program_page.files()[your_program_page.CONFIG]
    assert len(config.splitlines()) <= 20
    study = yaml.safe_load(config)
    (fresh.folder / "logged.py").write_text(PROGRAM)
    said = {"command": ["python3", "logged.py"], "log": "dlbench", "precision": {"": "float32"}}
    study["trainers"]["logged"] = said
    study["matrix"].append(LOGGED)
    site = CONFIG["site"] | {"device_peak_tflops": {"float32": 0.1}}
    fresh.configure(**study | {"repeats": 1, "site": site, "figures": ["scaling", "account"]})
    fresh.succeed("--cores", "2")
    rows = {row["trainer"]: row for row in fresh.rows()}
    logged = rows.pop("logged")
    (program,) = rows
    runs = [row for row in fresh.rows() if row["trainer"] == program]
    assert sorted(row["devices"] for row in runs) == ["1", "2"]
    for row in runs:
        assert row["status"] in TRAINED, row["message"]
        assert row["steps_measured"] == "50" and row["burn_in_steps"] == "10"
        assert float(row["images_per_second"]) == pytest.approx(
            512 / float(row["step_time_mean_s"]), rel=1e-6
        )
    (speedup,) = [row for row in fresh.rows("speedups") if row["devices"] == "2"]
    assert float(speedup["speedup"]) > 0
    assert "forty_weights" in (fresh.folder / "results/figures/scaling.svg").read_text()

    assert logged["status"] in TRAINED, logged["message"]
    assert (logged["steps_measured"], logged["burn_in_steps"]) == ("20", "4")
    assert (logged["learning_gate"], logged["top1"]) == ("reached", "0.8")
    assert float(logged["time_to_accuracy_s"]) > 0.01 * 24
    assert float(logged["goodput"]) > 0
    rate = float(logged["images_per_second"])
    assert float(logged["mfu"]) == pytest.approx(2e9 * rate / 1e12 / 0.1)
    accounts = [row for row in fresh.rows("accounts") if row["run_id"] == logged["run_id"]]
    spent_s = {row["part"]: float(row["spent_s"]) for row in accounts}
    assert spent_s["checkpoints"] >= 0.05 and spent_s["steps"] >= 0.2
    summary = json.loads(fresh.record("none-noise").read_text())["summary"]
    assert sum(spent_s.values()) == pytest.approx(summary["wall_s"], abs=0.02)
    combinations = json.loads(fresh.dlbench("status", "--json"))["combinations"]
    assert combinations["total"] == 3 and combinations["pending"] == 0
    assert fresh.scheduled() == {}
