"""Campaigns on a real Grid Engine, by the profile that is shipped."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.schedulers import JobState, sge, watched_runs
from support.campaigns.campaign import REPOSITORY, TRAINED, Campaign, environment

pytestmark = pytest.mark.usefixtures("grid_engine")
OPTIONS = ("--profile", "profiles/sge", "--seconds-between-status-checks", "2", "runs")
NEVER_ENDS = 10**6
# The first workflow in a clone installs the trainer's environment.
PATIENCE_S = 600
NOT_YET = JobState("", "running")


def new_campaign(folder, steps):
    campaign = Campaign.fresh(folder)
    campaign.configure_sleeping(steps=steps)
    site(campaign)
    return campaign


def site(campaign, **facts):
    facts |= {"device": "cpu", "cores_per_node": 8, "devices_per_node": 2}
    (campaign.folder / "site.yaml").write_text(json.dumps({"site": facts}))


@pytest.fixture
def started():
    """Starts a campaign's Snakemake, which says what it says into a file; kills it in the end."""
    processes = []

    def start(campaign):
        with open(campaign.folder / "said", "w") as said:
            processes.append(
                subprocess.Popen(
                    campaign.command(*OPTIONS),
                    cwd=campaign.folder,
                    env=environment(),
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )
            )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_campaign_is_trained_in_jobs_once_and_what_is_refused_is_told(tmp_path):
    campaign = new_campaign(tmp_path / "project", steps=[3, 4])
    output = campaign.succeed(*OPTIONS)
    assert output.count("external jobid") == 2
    for record in campaign.records().values():
        assert record["status"] in TRAINED
        job = record["provenance"]["job"]
        assert job["submitted_at"] <= job["started_at"]
    assert campaign.scheduled(*OPTIONS) == {}
    assert jobs() == {}

    campaign.configure_sleeping(steps=5)
    site(campaign, job={"extra": "-l none_such=1"})
    finished = campaign.snakemake(*OPTIONS)
    text = 'SGE refused its job: qsub failed (exit code 1): Unable to run job: unknown resource "n'
    assert finished.returncode != 0 and text in finished.stdout, finished.stdout
    assert "SGE refused its job, 5 times: " in campaign.dlbench("status")


def test_a_deleted_job_is_tried_again_and_an_interrupted_campaign_leaves_no_jobs(tmp_path, started):
    campaign = new_campaign(tmp_path / "project", steps=[3, NEVER_ENDS])
    process = started(campaign)
    job_id = long_job(campaign, process)
    subprocess.run(["qdel", job_id], check=True)
    retried = long_job(campaign, process, after=job_id)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0, said(campaign)
    wait_for(lambda: jobs() == {}, 30, f"the jobs to end: {jobs()}; {said(campaign)}")
    assert sge.job_states({job_id, retried})[job_id].status == "failed"
    # The short run went on beside it, and only what is missing is trained by another start.
    ((trained, record),) = campaign.records().items()
    assert record["status"] in TRAINED
    assert set(campaign.scheduled(*OPTIONS)["train"]) == {*campaign.ids()} - {trained}


def test_jobs_of_a_killed_snakemake_run_until_the_next_start_cancels_them(tmp_path, started):
    campaign = new_campaign(tmp_path / "project", steps=NEVER_ENDS)
    process = started(campaign)
    job_id = long_job(campaign, process)
    process.kill()
    process.wait()
    time.sleep(4)
    assert jobs()[job_id].status == "running"
    campaign.configure_sleeping(steps=3)
    campaign.succeed("--unlock")
    campaign.succeed(*OPTIONS)
    wait_for(lambda: jobs() == {}, 30, f"the jobs to end: {jobs()}")


def test_a_job_over_its_time_is_known_as_such(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resources = {
        "nodes": 1, "tasks": 1, "cpus_per_task": 2, "mem_mb": 100, "runtime": 1, "pe": "smp",
        "gpus_per_node": 0, "gpu_request": "gpu", "exclusive": 0, "extra": "-l h_rt=4",
    }  # fmt: skip
    job = tmp_path / "job.sh"  # as Snakemake writes them
    properties = {"rule": "train", "threads": 1, "resources": resources}
    job.write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\nsleep 60\n")
    job_id = program("submit", job)
    assert program("status", job_id) == "running"
    wait_for(lambda: sge.job_states({job_id}).get(job_id, NOT_YET).status == "timeout", 60)
    wait_for(lambda: program("status", job_id) == "failed", 10)
    assert [*watched_runs(Path())] == []


def jobs():
    """Fates of the jobs in the queue."""
    return sge._alive()


def long_job(campaign, workflow, after="0"):
    """The id of the job, of one submitted later than another, whose run takes steps."""

    def found():
        assert workflow.poll() is None, said(campaign)
        for log in campaign.folder.glob("results/runs/*/train.jsonl"):
            lines = [json.loads(line) for line in log.read_text().splitlines() if line[-1] == "}"]
            launch = next((e for e in lines if e["event"] == "launch"), {})
            steps = [e for e in lines if e["event"] == "step"]
            job_id = (launch.get("job") or {}).get("id", "0")
            if len(steps) > 5 and int(job_id) > int(after) and job_id in jobs():
                return job_id
        return None

    return wait_for(found, PATIENCE_S, "a run that takes steps")


def said(campaign):
    return (campaign.folder / "said").read_text()


def program(what, argument):
    return subprocess.run(
        [
            sys.executable,
            "-S",
            REPOSITORY / "workflow_scripts/cluster_job.py",
            what,
            "sge",
            argument,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def wait_for(condition, seconds, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"waited {seconds} s for {what}")
