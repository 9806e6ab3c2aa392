"""Campaigns on a real Grid Engine, by the profile that is shipped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from dlbench.cluster import cluster_job
from dlbench.schedulers import JobState, sge
from support.campaigns.campaign import Campaign, environment

pytestmark = pytest.mark.usefixtures("grid_engine")
OPTIONS = ("--profile", "profiles/sge", "--seconds-between-status-checks", "2", "runs")
NEVER_ENDS = 10**6
# The first workflow in a clone installs the trainer's environment.
PATIENCE_S = 600
# The jobs share this machine's cores.
TRAINED = {"ok", "unstable"}
NOT_YET = JobState("", "running")


def new_campaign(folder, steps):
    campaign = Campaign.fresh(folder)
    campaign.configure_sleeping(steps=steps)
    facts = {"device": "cpu", "cores_per_node": 8, "devices_per_node": 2}
    (folder / "site.yaml").write_text(json.dumps({"site": facts}))
    return campaign


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


def test_a_campaign_is_trained_in_jobs_and_nothing_twice(tmp_path):
    campaign = new_campaign(tmp_path / "project", steps=[3, 4])
    output = campaign.succeed(*OPTIONS)
    assert output.count("external jobid") == 2
    assert {status(campaign, run_id) for run_id in campaign.ids()} <= TRAINED
    for run_id in campaign.ids():
        job = json.loads((run(campaign, run_id) / "run.json").read_text())["provenance"]["job"]
        assert job["submitted_at"] <= job["started_at"]
    assert campaign.scheduled(*OPTIONS) == {}
    assert jobs() == {}


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
    trained = [run_id for run_id in campaign.ids() if (run(campaign, run_id) / "run.json").exists()]
    assert len(trained) == 1 and status(campaign, trained[0]) in TRAINED
    assert set(campaign.scheduled(*OPTIONS)["train"]) == set(campaign.ids()) - set(trained)


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
    job = script(tmp_path, 2, "sleep 60", extra="-l h_rt=4")
    job_id = program("submit", job)
    assert program("status", job_id) == "running"
    wait_for(lambda: sge.job_states({job_id}).get(job_id, NOT_YET).status == "timeout", 60)
    wait_for(lambda: program("status", job_id) == "failed", 10)
    assert cluster_job.watched() == []


@pytest.fixture
def gpus(tmp_path):
    """Gives the host GPUs, pretended ones, that are counted by slot or by job."""
    before = subprocess.run(["qconf", "-sc"], capture_output=True, text=True, check=True).stdout
    host = subprocess.run(["qconf", "-sel"], capture_output=True, text=True, check=True).stdout

    def complexes(text):
        (tmp_path / "complexes").write_text(text)
        subprocess.run(["qconf", "-Mc", tmp_path / "complexes"], check=True)

    def make(consumable):
        complexes(f"{before}gpu gpu INT <= YES {consumable} 0 0\n")
        subprocess.run(["qconf", "-aattr", "exechost", "complex_values", "gpu=4", host.strip()])

    yield make
    subprocess.run(["qconf", "-dattr", "exechost", "complex_values", "gpu", host.strip()])
    complexes(before)


@pytest.mark.parametrize(
    ("consumable", "slots"), [("YES", 2), ("JOB", 4)], ids=["by slot", "by job"]
)
def test_gpus_are_given_however_they_are_counted(consumable, slots, gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gpus(consumable)
    job_id = program("submit", script(tmp_path, slots, gpus_per_node=2))
    wait_for(lambda: (tmp_path / "free").exists(), 30)
    assert "gpu=2.000000" in (tmp_path / "free").read_text()  # of 4
    wait_for(lambda: program("status", job_id) == "success", 30)


def test_gpus_that_would_never_be_given_are_refused(gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gpus("YES")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        program("submit", script(tmp_path, 4, gpus_per_node=2))
    assert "asks for 2 GPUs and 4 slots a node, and Grid Engine counts gpu by slot" in (
        refused.value.stdout
    )
    assert jobs() == {}


def test_what_grid_engine_refuses_is_told_on_the_terminal_and_by_status(tmp_path):
    campaign = new_campaign(tmp_path / "project", steps=3)
    campaign.succeed("images")
    facts = {"device": "cpu", "cores_per_node": 8, "devices_per_node": 2}
    facts["job"] = {"extra": "-l none_such=1"}
    (campaign.folder / "site.yaml").write_text(json.dumps({"site": facts}))
    finished = campaign.snakemake(*OPTIONS)
    text = 'SGE refused its job: qsub failed (exit code 1): Unable to run job: unknown resource "n'
    assert finished.returncode != 0 and text in finished.stdout, finished.stdout
    listed = subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "status"],
        cwd=campaign.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "SGE refused its job, 5 times: " in listed


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


def script(folder, slots, does=None, **changes):
    """A job script as Snakemake writes them; the job says what of the host is free."""
    resources = {
        "nodes": 1, "tasks": 1, "cpus_per_task": slots, "mem_mb": 100, "runtime": 1, "pe": "smp",
        "gpus_per_node": 0, "gpu_request": "gpu", "exclusive": 0, "extra": "", **changes,
    }  # fmt: skip
    properties = {"rule": "train", "threads": 1, "resources": resources}
    does = does or "qhost -F gpu >free.part && mv free.part free"
    path = folder / "job.sh"
    path.write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\n{does}\n")
    return path


def run(campaign, run_id):
    return campaign.folder / "results/runs" / run_id


def status(campaign, run_id):
    return json.loads((run(campaign, run_id) / "run.json").read_text())["status"]


def program(*arguments):
    repository = os.path.join(os.path.dirname(__file__), "../..")
    return subprocess.run(
        [
            sys.executable,
            "-S",
            f"{repository}/workflow_scripts/cluster_job.py",
            arguments[0],
            "sge",
            *arguments[1:],
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
