"""A campaign in its course: exported while a run is missing, its failures tried again."""

import csv
import json
import shutil
import subprocess
import sys

import pytest

from dlbench.log import event_log
from support.campaigns.campaign import environment


def program(campaign, name, *arguments):
    finished = subprocess.run(
        [sys.executable, f"workflow_scripts/{name}", *arguments],
        cwd=campaign.folder,
        env=environment(),
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def fail(campaign, start):
    """Make the result of a run a failure, as if its trainer had run out of memory."""
    record = campaign.record(start)
    log = record.with_name("train.jsonl")
    end = {"status": "oom", "message": "no memory", "t_utc": event_log.utc_now()}
    with open(log, "a") as file:
        file.write(json.dumps({"event": "run_end", **end}) + "\n")
    spec = json.dumps(json.loads(record.read_text())["spec"])
    program(campaign, "parse_run.py", str(log), f"--spec={spec}")
    return record


def test_the_runs_that_are_there_are_exported_while_one_is_missing(campaign):
    missing = campaign.run_id("cnn12-")
    shutil.rmtree(campaign.folder / "results/runs" / missing)
    message = program(campaign, "dlbench", "export", "--output", "now.csv")
    assert "now.csv: 2 of 3 runs, 1 without a valid result" in message
    with open(campaign.folder / "now.csv", newline="") as file:
        assert [row["run_id"] for row in csv.DictReader(file)] == campaign.ids()
    found = json.loads(program(campaign, "dlbench", "status", "--json"))
    assert (found["combinations"]["total"], found["combinations"]["pending"]) == (3, 1)
    assert found["cost"]["estimates"]["unknown"] == 0


@pytest.mark.ci
def test_trying_again_trains_the_failed_run_alone(campaign):
    record = fail(campaign, "cnn12-")
    others = {p: p.read_bytes() for p in record.parents[1].glob("*/run.json") if p != record}
    assert json.loads(record.read_text())["status"] == "oom"
    assert campaign.scheduled().get("train") is None
    output = program(campaign, "dlbench", "retry", "--message", "memory", "--", "--cores", "2")
    assert f"{record.parent.name}\nforgot 1 run\n" in output
    assert json.loads(record.read_text())["status"] in ("ok", "unstable")
    assert list(record.parent.glob("train.attempt1.jsonl"))
    assert all(path.read_bytes() == content for path, content in others.items())
    assert campaign.scheduled() == {}
