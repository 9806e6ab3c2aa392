"""Programs that log with dlbench_log.py: the page that shows one, and what a run of one has."""

import csv
import json
import subprocess
import sys

import pytest
import yaml

from support.project import your_program_page

TRAINED = ("ok", "unstable")  # on a busy machine steps stall


def rows(campaign, table):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.ci
def test_the_page_leads_from_a_script_to_a_speedup_in_few_lines(fresh):
    your_program_page.write(fresh.folder)
    assert 1 <= len(your_program_page.added_lines(fresh.folder)) <= 5
    config = your_program_page.files()[your_program_page.CONFIG]
    assert len(config.splitlines()) <= 20
    study = yaml.safe_load(config)
    fresh.configure(**study | {"repeats": 2})
    fresh.succeed("--cores", "2")
    runs = rows(fresh, "runs")
    assert [row["devices"] for row in runs].count("2") == 2 and len(runs) == 4
    for row in runs:
        assert row["status"] in TRAINED, row["message"]
        assert row["steps_measured"] == "50" and row["burn_in_steps"] == "10"
        assert float(row["images_per_second"]) == pytest.approx(
            512 / float(row["step_time_mean_s"]), rel=1e-6
        )
    speedups = [row for row in rows(fresh, "speedups") if row["devices"] == "2"]
    assert speedups and all(float(row["speedup"]) > 0 for row in speedups)
    for figure in ("scaling", "loss"):
        assert "forty_weights" in (fresh.folder / f"results/figures/{figure}.svg").read_text()
    assert fresh.scheduled() == {}


PROGRAM = """
import dlbench_log, sys, time

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


def test_a_run_that_is_logged_has_account_gate_scores_and_mfu_as_ours_has(fresh):
    (fresh.folder / "logged.py").write_text(PROGRAM)
    site = yaml.safe_load((fresh.folder / "config.yaml").read_text())["site"]
    fresh.configure(
        trainers={"logged": {"command": ["python3", "logged.py"], "log": "dlbench"}},
        matrix=[
            {
                "name": "logged", "trainer": "logged", "framework": "python", "model": "none",
                "dataset": "noise", "batch_per_device": 8, "warmup_steps": 4, "steps": 20,
                "evaluate": "yes", "must_reach": {"top1": 0.7, "final_loss": 0.2},
            }
        ],
        site=site | {"device_peak_tflops": {"float32": 0.1}},
        figures=["loss", "account"],
    )  # fmt: skip
    (fresh.folder / "programs/logger/dlbench_log.py").rename(fresh.folder / "dlbench_log.py")
    fresh.succeed("all", "report")
    (row,) = rows(fresh, "runs")
    assert row["status"] in TRAINED, row["message"]
    assert (row["steps_measured"], row["burn_in_steps"]) == ("20", "4")
    assert (row["learning_gate"], row["top1"]) == ("reached", "0.8")
    assert float(row["time_to_accuracy_s"]) > 0.01 * 24
    assert float(row["goodput"]) > 0
    rate = float(row["images_per_second"])
    assert float(row["mfu"]) == pytest.approx(2e9 * rate / 1e12 / 0.1)
    spent_s = {one["part"]: float(one["spent_s"]) for one in rows(fresh, "accounts")}
    assert spent_s["checkpoints"] >= 0.05 and spent_s["steps"] >= 0.2
    record = json.loads(fresh.record("none-noise").read_text())
    assert sum(spent_s.values()) == pytest.approx(record["summary"]["wall_s"], abs=0.02)
    assert "none" in (fresh.folder / "results/report.html").read_text()
    status = [sys.executable, "workflow_scripts/dlbench", "status", "--json"]
    printed = subprocess.run(status, cwd=fresh.folder, capture_output=True, text=True, check=True)
    combinations = json.loads(printed.stdout)["combinations"]
    assert combinations["total"] == 1 and combinations["pending"] == 0
