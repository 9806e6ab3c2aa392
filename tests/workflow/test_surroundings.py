"""What is around a run and must not change it unseen: quotas of CPU time, variables of Python."""

import json
import subprocess
import time

import pytest

from support.campaigns.killed_workflows import wait_for
from support.machines import control_groups
from support.studies.site_facts import CONFIG


def records(campaign):
    """{devices: record} of a campaign's runs."""
    paths = (campaign.folder / "results/runs").glob("*/run.json")
    found = [json.loads(path.read_text()) for path in paths]
    return {record["spec"].get("devices_per_node", 1): record for record in found}


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
    one, two = (records(fresh)[devices] for devices in (1, 2))
    assert two["status"] == "skipped"
    assert two["message"].endswith("its control group has a quota of 0.5 cores of CPU time")
    assert one["status"] == "unstable"
    assert one["summary"]["quota_throttled_percent"] > 0.1
    assert "a quota of CPU time stopped the run's control group" in one["summary"]["disturbed"]


@pytest.mark.slow
def test_packages_of_pythonpath_reach_no_run(fresh, tmp_path):
    for name in ("keras", "horovod"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another one')\n")
    fresh.variables = {"PYTHONPATH": str(tmp_path)}
    block = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "steps": 3}
    two = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    matrix = [block | {"name": "one"}, block | {"name": "two"} | two]
    fresh.configure(matrix=[each | {"warmup_steps": 1} for each in matrix], figures=[])
    fresh.succeed("runs")
    for record in records(fresh).values():
        assert record["status"] in ("ok", "unstable"), record["message"]
        assert "PYTHONPATH" not in record["provenance"]["variables"]
    assert len(records(fresh)) == 2
