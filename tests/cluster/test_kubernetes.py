"""Kubernetes without a cluster.

The pods of a Job are started as processes of this machine, by the words of its manifest. The
executor's jobs go to a stand-in for the API server, which starts each as a process and is no
cluster either: tests/support/machines/paths.py says where it is looked for.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dlbench.common import tools
from dlbench.log import event_log
from dlbench.records import run_record
from support.campaigns.campaign import Campaign, environment
from support.machines.paths import EQUIPMENT, REPOSITORY
from support.studies.site_facts import SITE

BLOCK = {"name": "pods", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
         "steps": 4, "warmup_steps": 1, "nodes": 2, "strategy": "multiworker",
         "launcher": "kubernetes"}  # fmt: skip
ONE_POD = {**BLOCK, "nodes": 1, "strategy": "single", "launcher": "none"}
STAND_IN = EQUIPMENT / "kubernetes" / "fake_kube.py"


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
    return sorted([*jobs["train"], *jobs.get("skip_run", [])])


def test_the_profile_sends_a_run_to_a_pod_with_its_image_and_gpus(tmp_path, cluster):
    campaign = Campaign.fresh(tmp_path / "project")
    campaign.configure(matrix=[ONE_POD], figures=[], site=SITE | {"cores_per_node": 2})
    # The sources of a job are the files that git knows.
    for arguments in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *arguments], cwd=campaign.folder, check=True)
    (campaign.folder / "profiles/kubernetes/config.yaml").write_text(profile(campaign.folder))
    done = subprocess.run(
        [cluster.python, "-m", "snakemake", "--profile", "profiles/kubernetes", "runs",
         "--set-resources", "train:gpu=1", "train:gpu_manufacturer='nvidia'", "train:scale=False",
         "train:mem_mb=900"],
        cwd=campaign.folder,
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )  # fmt: skip
    message = done.stdout + done.stderr + "".join(p.read_text() for p in cluster.root.glob("*.log"))
    assert done.returncode == 0, message

    (posted,) = (json.loads(path.read_text()) for path in cluster.root.glob("*.json"))
    spec = posted["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    settings = yaml.safe_load((REPOSITORY / "profiles/kubernetes/config.yaml").read_text())
    assert posted["spec"]["backoffLimit"] == 0
    assert spec["restartPolicy"] == "Never"
    assert container["image"] == settings["container-image"]
    assert container["env"] == []  # nothing of this machine but what the command line says
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["nvidia.com/gpu"] == "1"
    assert resources["limits"]["memory"] == "900M"
    claims = [
        v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "emptyDir" not in v
    ]
    assert claims == ["study"]
    (run_id,) = campaign.ids()
    assert run_record.read(campaign.record(run_id))["status"] in ("ok", "unstable")
    assert "train" not in campaign.scheduled()


@dataclass(frozen=True)
class Cluster:
    """A stand-in that runs: what it was posted is in `root`."""

    root: Path
    python: Path  # of an environment with the executor's plugin
    environment: dict


@pytest.fixture
def cluster(tmp_path):
    if not STAND_IN.is_file():
        pytest.skip(f"no {STAND_IN}: name a folder that has it in DLBENCH_TEST_EQUIPMENT")
    # Of its own: Snakemake would load the plugin at each start in ours.
    place = tmp_path / "environment"
    arguments = ["sync", "--project", REPOSITORY, "--frozen", "--extra", "kubernetes"]
    installed = subprocess.run(
        [tools.find_uv(), *arguments],
        env=os.environ | {"UV_PROJECT_ENVIRONMENT": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"the executor plugin cannot be installed: {installed.stderr[-200:]}")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    # In place of the image's: the storage plugin is there already.
    (binaries / "pip").write_text("#!/bin/sh\n")
    (binaries / "pip").chmod(0o755)
    port = free_port()
    variables = environment() | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    variables["PATH"] = f"{binaries}:{place}/bin:{variables['PATH']}"
    text = (STAND_IN.parent / "kubeconfig").read_text().replace("18080", str(port))
    (tmp_path / "kubeconfig").write_text(text)
    root = tmp_path / "posted"
    # Jobs get its path, and so Snakemake with the plugins.
    server = subprocess.Popen(
        [place / "bin/python", STAND_IN, str(port), root], env=variables, start_new_session=True
    )
    wait_for(port)
    yield Cluster(root, place / "bin/python", variables)
    os.killpg(server.pid, signal.SIGTERM)
    server.wait()


def profile(folder):
    """The profile as a site fills it in, for this machine, and with less patience."""
    text = (REPOSITORY / "profiles/kubernetes/config.yaml").read_text()
    filled = {"/opt/dlbench": str(REPOSITORY / "envs/train/.venv"),
              "fs/study/dlbench": f"fs{folder}", "/study/dlbench": str(folder),
              "status-checks: 10": "status-checks: 1"}  # fmt: skip
    for before, after in filled.items():
        assert before in text
        text = text.replace(before, after)
    return text


def wait_for(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError("the stand-in does not answer")


def kubernetes_job(campaign, run_id, code=0):
    """What the command that makes a Job of a run prints."""
    flags = ("--image", "example", "--claim", "study", "--mount", "/")
    return campaign.dlbench("kubernetes-job", run_id, *flags, code=code)


def start(container, index, folder):
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    variables |= {"JOB_COMPLETION_INDEX": str(index), "DLBENCH_POD_HOSTS": "localhost,127.0.0.1"}
    variables |= {"DLBENCH_POD_PORT": str(PORT), "DLBENCH_POD_LINGER_S": "0"}
    return subprocess.Popen(
        container["command"],
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
