"""What is around a run and must not change it unseen: quotas of CPU time, variables of Python."""

import json
import subprocess
import time

import pytest

from support.campaigns.campaign import TRAINED
from support.campaigns.killed_workflows import wait_for
from support.machines import control_groups
from support.studies.site_facts import CONFIG


def is_measured(log):
    return '"warm_up": false' in log.read_text()


@pytest.mark.skipif(not control_groups.place(), reason="no control groups can be made here")
def test_a_quota_of_cpu_time_counts_as_cores_and_what_it_stops_is_named(fresh):
    block = {"name": "one and two", "model": "lenet5", "dataset": "synthetic", "steps": 200}
    block |= {"strategy": "mirrored", "devices_per_node": [1, 2], "batch_per_device": 64}
    site = CONFIG["site"] | {"name": "here", "device": "cpu", "devices_per_node": "auto"}
    fresh.configure(matrix=[block], figures=[], site=site, others_share=0.001)
    logs = fresh.folder / "results/runs"
    with control_groups.with_quota(0.5) as group:
        command = control_groups.joining(group, fresh.command("runs"))
        workflow = subprocess.Popen(command, cwd=fresh.folder, env=fresh.environment())
        wait_for(lambda: any(map(is_measured, logs.glob("*/train.jsonl"))), "a step")
        # On a busy machine the run may hardly come to use half a core up.
        control_groups.set_quota(group, 0.05)
        time.sleep(1)
        control_groups.set_quota(group, 0.5)
        assert workflow.wait() == 0
    records = fresh.records().values()
    one, two = sorted(records, key=lambda record: record["spec"].get("devices_per_node", 1))
    assert two["status"] == "skipped"
    assert two["message"].endswith("its control group has a quota of 0.5 cores of CPU time")
    assert one["status"] == "unstable"
    assert one["summary"]["quota_throttled_percent"] > 0.1
    assert "a quota of CPU time stopped the run's control group" in one["summary"]["disturbed"]


def test_packages_of_pythonpath_reach_no_run_and_variables_of_a_study_each_rank(fresh, tmp_path):
    for name in ("keras", "horovod"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another one')\n")
    fresh.variables = {"PYTHONPATH": str(tmp_path)}
    one = {"name": "one", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4}
    one |= {"steps": 3, "warmup_steps": 1}
    two = one | {"strategy": "horovod", "devices_per_node": 2, "launcher": "horovodrun"}
    mpirun = two | {"launcher": "mpirun", "launcher_options": {"coll": "^hcoll"}}
    mpirun["variables"] = {"HOROVOD_CYCLE_TIME": 2}
    fresh.configure(matrix=[one, two | {"name": "2"}, mpirun | {"name": "3"}], figures=[])
    fresh.succeed()
    records = fresh.records()
    assert len(records) == 3
    for record in records.values():
        assert record["status"] in TRAINED, record["message"]
        assert "PYTHONPATH" not in record["provenance"]["variables"]
    (row,) = [row for row in fresh.rows() if row["launcher"] == "mpirun"]
    # The trainer refuses to start without the variable (trainer/containment.py).
    assert row["variables"] == "HOROVOD_CYCLE_TIME=2"
    log = fresh.folder / "results/runs" / row["run_id"] / "train.jsonl"
    command = json.loads(log.read_text().partition("\n")[0])["command"]
    assert command[command.index("coll") - 1 :][:3] == ["--mca", "coll", "^hcoll"]
