"""Kubernetes without a cluster: the pods of a Job are processes of this machine, started by the
words of its manifest.
"""

import socket
import subprocess
import sys

import yaml

from dlbench.log import event_log
from dlbench.records import run_record
from support.campaigns.campaign import Campaign, environment
from support.studies.site_facts import SITE

BLOCK = {"name": "pods", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
         "steps": 4, "warmup_steps": 1, "nodes": 2, "strategy": "multiworker",
         "launcher": "kubernetes"}  # fmt: skip
ONE_POD = {**BLOCK, "nodes": 1, "strategy": "single", "launcher": "none"}


def test_the_pods_of_a_job_leave_a_record_that_the_workflow_takes(tmp_path):
    campaign = Campaign.fresh(tmp_path / "project")
    campaign.configure(matrix=[BLOCK, ONE_POD], figures=[], site=SITE | {"nodes": 2})
    with_both = scheduled_runs(campaign)
    run_id = next(name for name in with_both if "multiworker" in name)
    record = campaign.folder / "results/runs" / run_id / "run.json"

    manifest = kubernetes_job(campaign, run_id).replace(
        # The workflow's own Python is that of the tests.
        ".venv/bin/python workflow_scripts/start_run.py",
        f"{sys.executable} workflow_scripts/start_run.py",
    )
    documents = yaml.safe_load_all(manifest)
    spec = next(d for d in documents if d["kind"] == "Job")["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        finish([start(container, index, campaign.folder) for index in (0, 1)])

    found = run_record.read(record)
    # On a busy machine steps stall.
    assert found["status"] in ("ok", "unstable"), found["message"]
    logs = event_log.rank_paths(record.with_name("train.jsonl"))
    assert len(logs) == 2
    ends = [event for log in logs for event in event_log.read(log) if event["event"] == "run_end"]
    assert len({tuple(end["weights_sha256"]) for end in ends}) == 1
    assert scheduled_runs(campaign) == [name for name in with_both if name != run_id]
    assert "is done already" in kubernetes_job(campaign, run_id, code=2)


def scheduled_runs(campaign):
    """Those of one pod, which are trained, and those of several, which are not, here."""
    jobs = campaign.scheduled()
    return sorted([*jobs["train"], *jobs.get("record_run", [])])


def kubernetes_job(campaign, run_id, code=0):
    """What the command that makes a Job of a run prints."""
    flags = ("--image", "example", "--claim", "study", "--mount", "/")
    return campaign.dlbench("kubernetes-job", run_id, *flags, code=code)


def start(container, index, folder):
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    variables |= {"JOB_COMPLETION_INDEX": str(index), "DLBENCH_POD_HOSTS": "localhost,127.0.0.1"}
    variables |= {"DLBENCH_POD_PORT": str(PORT), "DLBENCH_POD_FOLDER": "results/logs/pods/1"}
    variables["DLBENCH_POD_JOB"] = "1"
    return subprocess.Popen(
        [word.replace("$$", "$") for word in container["command"]],
        cwd=folder,
        env=environment() | variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(pods):
    try:
        outputs = [pod.communicate(timeout=60)[0] for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
    assert [pod.returncode for pod in pods] == [0, 0], outputs


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


PORT = free_port()
