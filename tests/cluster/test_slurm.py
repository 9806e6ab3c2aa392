"""The real Snakefile by `snakemake --profile slurm` on a real Slurm, and what may go wrong."""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import yaml

from dlbench.common import orphans, tools
from dlbench.plan import baselines, standing
from dlbench.tables import parquet_files
from support.campaigns.campaign import TRAINED, Campaign
from support.campaigns.jobs_at_work import aside, has_aside, running_jobs, start, status
from support.machines import busy_neighbours, slurm_cluster
from support.machines.slurm_cluster import FACTS, wait_for

QUICK = {
    "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "warmup_steps": 1, "steps": 3,
}  # fmt: skip
NODES = [
    {"name": "one node", **QUICK},
    {"name": "Horovod", **QUICK, "strategy": "horovod", "launcher": ["srun", "mpirun"], "nodes": 2},
    {
        "name": "Slurm's variables",
        **QUICK,
        "strategy": ["parameter_server", "multiworker"],
        "launcher": "srun",
        "nodes": 2,
    },
]


@pytest.fixture(scope="module")
def across_nodes(slurm, tmp_path_factory):
    """A finished campaign on one and on two nodes, started as the documentation says."""
    folder = tmp_path_factory.mktemp("slurm_campaign")
    campaign = Campaign.fresh(folder / "project")
    (folder / ".config/snakemake").mkdir(parents=True)
    (folder / ".config/snakemake/slurm").symlink_to(campaign.folder / "profiles/slurm")
    campaign.variables = {**slurm.variables, "HOME": str(folder)}
    site(campaign)
    campaign.configure(matrix=NODES, figures=["scaling"])
    campaign.output = campaign.succeed("--profile", "slurm")
    return campaign


@pytest.fixture
def campaign(across_nodes, tmp_path):
    """A copy of it, with a study of its own to come."""
    copy = across_nodes.copy(tmp_path / "project")
    copy.variables = across_nodes.variables
    return copy


def site(campaign, **changes):
    (campaign.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS | changes}))


def records_of(campaign):
    return [*campaign.records().values()]


@pytest.mark.ci
def test_runs_of_one_and_of_two_nodes_are_trained_once_in_jobs_with_their_names(
    across_nodes, campaign, slurm
):
    records = records_of(across_nodes)
    assert [record["status"] in TRAINED for record in records] == [True] * 5
    names = slurm.run("sacct", "-X", "--parsable2", "--format=JobID,JobName").splitlines()
    for record in records:
        provenance = record["provenance"]
        assert f"{provenance['job']['id']}|{record['run_id']}" in names
        nodes = record["spec"].get("nodes", 1)
        assert len(provenance["job"]["hosts"]) == nodes
        assert set(provenance["hosts"]) <= set(provenance["job"]["hosts"])
        if record["spec"].get("strategy") in ("horovod", "multiworker"):
            assert len(provenance["hosts"]) == 2
        site = {"name": "three nodes", "interconnect": "loopback", "storage": None}
        assert provenance["site"] == site
        assert 0 <= record["summary"]["account_s"]["queue"] < 3600
        assert provenance["job"]["submitted_at"] <= provenance["job"]["started_at"]
    assert len({record["provenance"]["job"]["id"] for record in records}) == 5

    # What the site cannot do is recorded without a job.
    before = slurm.jobs()
    wide = {"name": "wide", **QUICK, "strategy": "mirrored", "devices_per_node": 4}
    campaign.configure(matrix=[*NODES, wide], figures=[])
    campaign.succeed("--profile", "slurm")
    (skipped,) = [r for r in records_of(campaign) if r["status"] == "skipped"]
    assert skipped["message"] == "needs 4 cpu devices per node; this site has 2"
    assert skipped["provenance"]["job"] is None
    state = status(campaign)["combinations"]
    assert (state["skipped"], state["stale"]) == (1, 0)
    assert "Nothing to be done" in campaign.succeed("--profile", "slurm")
    assert slurm.jobs() == before
    folder = campaign.record("lenet5-synthetic-b4-single").parent
    shutil.rmtree(folder)
    assert campaign.scheduled("--profile", "slurm")["train"] == [folder.name]


@pytest.fixture
def busy_core(slurm):
    """The core of n2, on which something else computes as long as a run of n2 does.

    The other nodes have another one. What else the machine does must not matter: runs of the nodes,
    and what is beside n2, go before all of it.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("a busy core and a quiet one are two")
    loop = f"import os\nos.sched_setaffinity(0, {{{cores[-1]}}})\nwhile True: pass"
    ends = functools.partial(orphans.end_with_parent, os.getpid())
    command = [sys.executable, "-I", "-S", "-c", loop]
    done = threading.Event()
    with contextlib.ExitStack() as until_done:
        for node in slurm_cluster.NODES:
            until_done.callback(slurm.place, node, cores)
            slurm.place(node, [cores[-1] if node == "n2" else cores[0]])
        busy = []
        for _ in range(2):
            process = subprocess.Popen(command, preexec_fn=ends, start_new_session=True)
            busy.append(process)
            until_done.callback(process.wait)
            until_done.callback(process.kill)
            try:
                busy_neighbours.put_before_all_else(process.pid)
            except PermissionError:
                pytest.skip("other tests compute meanwhile, and nothing may go before them here")
        beside = threading.Thread(target=busy_neighbours.compute_beside, args=("n2", busy, done))
        until_done.callback(beside.join)
        until_done.callback(done.set)
        beside.start()
        yield cores[-1]


def test_a_node_on_which_something_else_computes_is_named_and_no_other(campaign, busy_core):
    study = yaml.safe_load((campaign.folder / "studies/screening/config.yaml").read_text())
    (block,) = study["matrix"]
    short = {"model": "lenet5", "batch_per_device": 64, "node": "n[1-3]"}
    campaign.configure(**study | {"matrix": [block | short], "repeats": 3, "others_share": 0.3})
    # One run after the other: nodes are cores here, and two of them the same one.
    campaign.succeed("report", "--profile", "slurm", "--jobs", "1")
    found = [record for record in records_of(campaign) if "node" in record["spec"]]
    assert len(found) == 9 and all(record["status"] in TRAINED for record in found)
    for record in found:
        on_busy = [rank["cpus"] == [busy_core] for rank in record["provenance"]["ranks"]]
        assert on_busy == [record["spec"]["node"] == "n2"]
    table = {row["node"]: row for row in campaign.typed_rows("nodes")}
    verdicts = {node: row["verdict"] for node, row in table.items()}
    assert verdicts.pop("n2") == "slower" and "slower" not in verdicts.values(), table
    slow = table["n2"]
    assert sorted(table) == ["n1", "n2", "n3"] and (slow["runs"], slow["disturbed"]) == (3, True)
    assert slow["ratio_ci95_low"] < slow["ratio"] < slow["ratio_ci95_high"] < 1
    report = (campaign.folder / "results/report.html").read_text()
    assert "nodes slower than the others: n2" in report
    assert "in 3 runs, all disturbed, p = " in report


BY_PLUGIN = [
    "--executor", "slurm", "--jobs", "10",
    "--default-resources", "slurm_partition=cpu", "mem_mb=1000", "runtime=10",
]  # fmt: skip


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with the plugin of the executor slurm, which the workflow does not install."""
    folder = str(tmp_path_factory.mktemp("plugin"))
    packages = ["slurm==2.8.0", "slurm-jobstep==0.6.1"]
    packages = [f"snakemake-executor-plugin-{name}" for name in packages]
    install = [tools.find_uv(), "pip", "install", "-q", "--no-deps", "--target", folder]
    subprocess.run([*install, *packages, "throttler==1.2.3"], check=True)
    return folder


@pytest.fixture
def without_profile(slurm, plugin, tmp_path):
    """A fresh campaign for BY_PLUGIN, without a profile of ours."""
    campaign = Campaign.fresh(tmp_path / "project")
    campaign.variables = {**slurm.variables, "PYTHONPATH": plugin}
    site(campaign)
    return campaign


def test_the_executor_slurm_trains_runs_of_one_and_of_two_nodes_at_once(without_profile):
    campaign = without_profile
    campaign.configure_sleeping(seed=[1, 2, 3], steps=200)
    study = yaml.safe_load((campaign.folder / "config.yaml").read_text())
    two = {"name": "two", **QUICK, "strategy": "multiworker", "launcher": "srun", "nodes": 2}
    campaign.configure(**study | {"matrix": [*study["matrix"], two]})
    output = campaign.succeed(*BY_PLUGIN)
    records = records_of(campaign)
    assert [record["status"] in TRAINED for record in records] == [True] * 4, output
    for record in records:
        hosts = record["provenance"]["hosts"]
        assert hosts == record["provenance"]["job"]["hosts"]
        assert len(hosts) == record["spec"].get("nodes", 1)
    begins = sorted(record["summary"]["started_at"] for record in records)
    ends = sorted(record["summary"]["ended_at"] for record in records)
    assert begins[2] < ends[0]  # three at once
    assert "Nothing to be done" in campaign.succeed(*BY_PLUGIN)


def test_jobs_of_the_executor_slurm_get_gpus_and_are_told_of_and_cancelled_by_the_next_start(
    without_profile, slurm
):
    campaign = without_profile
    held = FACTS["job"] | {"extra": "--hold"}
    site(campaign, device="gpu", devices_per_node=4, job=held)
    campaign.configure(matrix=[{"name": "held", **QUICK, "seed": 14}], figures=[])
    process = start(campaign, options=BY_PLUGIN)
    (job,) = wait_for(slurm.queue, 300)
    request = slurm.run("scontrol", "show", "job", "--oneliner", job)
    assert "TresPerNode=gres:gpu:1 " in request and "OverSubscribe=NO" in request
    (reason,) = status(campaign)["reasons"]
    assert reason["message"] == f"Slurm has not started job {job}: JobHeldUser"
    process.kill()
    process.wait()
    campaign.succeed("--unlock")
    site(campaign)
    output = campaign.succeed(*BY_PLUGIN)
    assert f"cancelled jobs that an earlier start left behind: {job}" in output
    assert all(record["status"] in TRAINED for record in records_of(campaign))
    assert slurm.queue() == []


def test_a_campaign_goes_on_whatever_happens_to_its_jobs(campaign, slurm):
    """Cancelled, out of its node, the controller restarted, accounting away."""
    configure_long(campaign, 3)
    process = start(campaign)
    cancelled, lost, left = running_jobs(campaign, 3)
    slurm.run("scancel", cancelled.job)
    slurm.run("scontrol", "update", f"nodename={lost.host}", "state=down", "reason=test")
    slurm.restart_controller()
    slurm.stop("slurmdbd")
    time.sleep(12)  # the workflow looks at the queue meanwhile
    slurm.start_accounting()
    output, _ = process.communicate(timeout=600)  # Slurm takes the node back by itself
    assert process.returncode == 0, output
    attempts = {run.run_id: aside(campaign, run.run_id) for run in (cancelled, lost, left)}
    assert [len(attempts[run.run_id]) for run in (cancelled, lost, left)] == [1, 1, 0], output
    assert all(record["status"] in TRAINED for record in records_of(campaign))
    assert "Nothing to be done" in campaign.succeed("--profile", "slurm")


def test_a_submission_that_is_refused_for_a_moment_waits(campaign, tmp_path):
    """As where the queue is full: sbatch refuses once, then it is the real one."""
    refused = tmp_path / "refused"
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        f'#!/bin/sh\n[ -e {refused} ] && exec {shutil.which("sbatch")} "$@"\n'
        f"touch {refused}; echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1\n"
    )
    sbatch.chmod(0o755)
    path = f"{sbatch.parent}:{os.environ['PATH']}"
    campaign.variables = campaign.variables | {"PATH": path}
    campaign.configure(matrix=[{"name": "refused", **QUICK, "seed": 11}], figures=[])
    output = campaign.succeed("--profile", "slurm")
    message = "sbatch failed (exit code 1): sbatch: error: QOSMaxSubmitJobPerUserLimit"
    assert "Trying to restart" not in output and f"Slurm refused its job: {message}" in output
    assert all(record["status"] in TRAINED for record in records_of(campaign))
    fields = [record["provenance"]["refused"] for record in records_of(campaign)]
    assert [found["message"].startswith(message) for found in fields if found] == [True]


def test_what_slurm_refuses_is_told_on_the_terminal_and_by_status(campaign):
    site(campaign, job=FACTS["job"] | {"extra": "--licenses=none_such"})
    campaign.configure(matrix=[{"name": "refused", **QUICK, "seed": 12}], figures=[])
    finished = campaign.snakemake("--profile", "slurm")
    words = (
        "Slurm refused its job: sbatch failed (exit code 1): sbatch: error: Batch job submission"
    )
    assert finished.returncode != 0 and finished.stdout.count(words) == 5, finished.stdout
    (reason,) = status(campaign)["reasons"]
    assert reason["state"] == "pending" and "Slurm refused its job, 5 times: " in reason["message"]
    assert "Invalid license" in reason["message"]


def test_preemptions_use_up_no_attempt(campaign, slurm):
    configure_long(campaign, 1, seed=8)
    process = start(campaign, "--set-resources", "train:slurm_partition=low")
    others = ["--partition=cpu", "--nodes=3", "--exclusive", "--mem=100", "--output=/dev/null"]
    for number in (1, 2):
        (run,) = running_jobs(campaign, 1)
        slurm.run("sbatch", *others, "--wrap=sleep 3")
        wait_for(functools.partial(has_aside, campaign, run.run_id, number), 60)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert "PREEMPTED" in slurm.run("sacct", "-X", "--noheader", "--format=State", "-j", run.job)
    assert len(aside(campaign, run.run_id)) == 2
    assert all(record["status"] in TRAINED for record in records_of(campaign))


def test_what_a_job_that_cannot_start_waits_for_is_told(campaign, slurm):
    site(campaign, job=FACTS["job"] | {"extra": "--hold"})
    campaign.configure(matrix=[{"name": "held", **QUICK, "seed": 14}], figures=[])
    process = start(campaign)
    (job,) = wait_for(slurm.queue, 150)
    (reason,) = status(campaign)["reasons"]
    assert reason["state"] == "pending"
    assert reason["message"] == f"Slurm has not started job {job}: JobHeldUser"
    time.sleep(standing.EVERY_S + 5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert output.count(f"Slurm does not start job {job} of lenet5-") == 1, output


@pytest.mark.ci
def test_jobs_are_cancelled_by_ctrl_c_and_those_of_a_killed_workflow_by_its_next_start(
    campaign, slurm
):
    configure_long(campaign, 1, seed=4)
    process = start(campaign)
    (run,) = running_jobs(campaign, 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    wait_for(lambda: not slurm.queue(), 30)
    state = status(campaign)["combinations"]
    assert state["pending"] + state["interrupted"] == 1
    assert campaign.scheduled("--profile", "slurm")["train"] == [run.run_id]

    process = start(campaign)
    (old,) = wait_for(lambda: [r for r in running_jobs(campaign, 1) if r.job != run.job], 120)
    process.kill()
    process.wait()
    assert slurm.queue() == [old.job]
    assert status(campaign)["combinations"]["running"] == 1
    slurm.run("scontrol", "suspend", old.job)  # or it is done before a start on a busy machine
    campaign.succeed("--unlock")
    output = campaign.succeed("--profile", "slurm")
    assert f"cancelled jobs that an earlier start left behind: {old.job}" in output
    assert all(record["status"] in TRAINED for record in records_of(campaign))


def test_what_a_job_finished_after_its_workflow_was_killed_is_taken(campaign, slurm):
    configure_long(campaign, 1, seed=9)
    process = start(campaign)
    (run,) = running_jobs(campaign, 1)
    process.kill()
    process.wait()
    wait_for(lambda: not slurm.queue(), 120)
    campaign.succeed("--unlock")
    assert "train" not in campaign.scheduled("--profile", "slurm")
    campaign.succeed("--profile", "slurm")
    (record,) = [r for r in records_of(campaign) if r["run_id"] == run.run_id]
    assert record["provenance"]["job"]["id"] == run.job


def test_short_runs_share_a_job_once_it_is_known_that_they_are_short(campaign, slurm):
    site(campaign, job=FACTS["job"] | {"bundle_min": 10})
    campaign.configure(matrix=[{"name": "short", **QUICK, "seed": [1, 5, 6, 7]}], figures=[])
    campaign.succeed("--profile", "slurm")
    jobs = [record["provenance"]["job"]["id"] for record in records_of(campaign)]
    new = [record for record in records_of(campaign) if record["spec"].get("seed", 1) != 1]
    assert len(new) == 3 and len({record["provenance"]["job"]["id"] for record in new}) == 1
    assert len(jobs) == 8  # those of the study before them, too
    # One after the other.
    spans = sorted(
        (record["summary"]["started_at"], record["summary"]["ended_at"]) for record in new
    )
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_each_node_is_waited_for_once_for_its_runs_and_its_baselines(campaign, slurm):
    site(campaign, job=FACTS["job"] | {"bundle_min": 240})
    two = {"strategy": "multiworker", "devices_per_node": 2, "seed": [2, 3]}
    campaign.configure(matrix=[{"name": "nodes", **QUICK, **two, "node": "n[2-3]"}], figures=[])
    before = slurm.jobs()
    campaign.succeed("all", "baselines", "--profile", "slurm")
    assert len(slurm.jobs() - before) == 2
    found = [record for record in records_of(campaign) if "node" in record["spec"]]
    assert [record["status"] in TRAINED for record in found] == [True] * 4
    rows = parquet_files.read_any(campaign.folder / baselines.TABLE).to_pylist()
    assert {(row["node"], row["measure"]) for row in rows} >= {
        (node, measure) for node in ("n2", "n3") for measure in ("matrix_product", "all_reduce")
    }
    assert campaign.scheduled("--profile", "slurm", "all", "baselines") == {}
    # One after the other, whatever Snakemake starts at once in a job.
    spans = {node: [] for node in ("n2", "n3")}
    for record in found:
        summary = record["summary"]
        spans[record["spec"]["node"]].append((summary["started_at"], summary["ended_at"]))
    for of_node in map(sorted, spans.values()):
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(of_node))


def configure_long(campaign, number, seed=2):
    """Runs so long that they can be met at work, all at once also where they start one by one."""
    campaign.configure_sleeping(seed=seed, repeats=number, steps=75 * (1 + number))
