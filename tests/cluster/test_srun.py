"""The launcher srun on a real Slurm: processes on two nodes find one another and train alike."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import cluster
from support.machines.processes import alive

REPOSITORY = Path(__file__).parents[2]
JAX = {"framework": "jax", "environment": "jax"}
QUICK = {
    **{"model": "lenet5", "dataset": "synthetic", "steps": 4, "warmup_steps": 1},
    **{"batch_per_device": 8, "launcher": "srun"},
}
PYTORCH = {"framework": "pytorch", "environment": "pytorch"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how",
    [
        {"strategy": "multiworker"},
        {"strategy": "multiworker", "nodes": 1, "devices_per_node": 2},
        {"strategy": "parameter_server", "strategy_options": "update=averaged"},
        {"strategy": "horovod"},
        {"strategy": "sharded", **JAX},
        {"strategy": "ddp", **PYTORCH},
        {"strategy": "fsdp", **PYTORCH},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_processes_under_srun_find_one_another_and_train_one_model(how, slurm, tmp_path):
    run = Run(**{"nodes": 2, **QUICK, **how})
    log = tmp_path / "train.jsonl"
    finished = train(run, log, slurm.variables)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    paths = event_log.rank_paths(log)
    starts = [events(path, "run_start")[0] for path in paths]
    servers = run.strategy == "parameter_server"
    assert len(paths) == (1 if servers else 2)
    if not servers:
        assert len({start["host"] for start in starts}) == run.nodes
    digests = {tuple(events(path, "run_end")[0]["weights_sha256"]) for path in paths}
    assert len(digests) == 1
    assert sum(len(start["devices"]) for start in starts) == 2


@pytest.fixture
def nameless(slurm, tmp_path):
    """Words before a trainer, for which no node of the cluster has a name."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(hosts)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how",
    [
        {"strategy": "ddp", "nodes": 1, **PYTORCH},
        {"strategy": "multiworker", "nodes": 1, "devices_per_node": 2},
        {"strategy": "ddp", **PYTORCH},
        {"strategy": "multiworker"},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_nodes_without_names_are_reached_by_loopback_or_as_slurm_reaches_them(
    how, slurm, nameless, tmp_path, monkeypatch
):
    monkeypatch.setenv("SLURM_CONF", slurm.variables["SLURM_CONF"])
    addresses = plugins.load("schedulers", "slurm").addresses(["n1", "n2", "n3"])
    assert addresses == dict.fromkeys(("n1", "n2", "n3"), "127.0.0.1")
    log = tmp_path / "train.jsonl"
    variables = {**slurm.variables, cluster.NODE_ADDRESSES: json.dumps(addresses)}
    finished = train(Run(**{"nodes": 2, **QUICK, **how}), log, variables, before=nameless)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert events(log, "run_end")[0]["status"] == "ok"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how",
    [{"strategy": "multiworker"}, {"strategy": "sharded", **JAX}, {"strategy": "ddp", **PYTORCH}],
    ids=lambda how: how["strategy"],
)
def test_a_node_that_nobody_knows_is_named_before_the_framework_is_imported(
    how, slurm, nameless, tmp_path
):
    log = tmp_path / "train.jsonl"
    begin = time.monotonic()
    finished = train(Run(nodes=2, **QUICK, **how), log, slurm.variables, before=nameless)
    assert finished.returncode != 0 and time.monotonic() - begin < 30  # on a busy machine
    end = events(log, "run_end")[-1]
    assert end["before_first_step"] and "n1 (Name or service not known)" in end["message"]
    assert end["message"].startswith(("node n1 does not know", "node n2 does not know"))


def test_a_node_that_does_not_know_itself_is_named_where_jax_would_listen(
    slurm, nameless, tmp_path
):
    log = tmp_path / "train.jsonl"
    variables = {cluster.NODE_ADDRESSES: json.dumps(dict.fromkeys(("n1", "n2"), "127.0.0.1"))}
    run = Run(nodes=2, **QUICK, strategy="sharded", **JAX)
    assert train(run, log, slurm.variables | variables, before=nameless).returncode != 0
    end = events(log, "run_end")[-1]
    assert (
        end["before_first_step"]
        and "its host name does not resolve to an address of it" in end["message"]
    )


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("asked", "shown", "numbers"),
    [
        ({"SLURM_GPUS_PER_TASK": "1"}, ["0", "1"], ["gpu:0", "gpu:0"]),
        ({"SLURM_GRES": "gpu:2"}, ["0,1", "0,1"], ["gpu:0", "gpu:1"]),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "none"}, [None] * 2, ["gpu:0", "gpu:1"]),
    ],
    ids=["one for each task", "those of the job", "all of the node"],
)
def test_each_rank_has_a_gpu_and_cores_of_its_own_whichever_gpus_slurm_shows_it(
    asked, shown, numbers, slurm, tmp_path
):
    log = tmp_path / "train.jsonl"
    run = Run(**{**QUICK, "devices_per_node": 2}, strategy="ddp", **PYTORCH)
    program = "tests/support/trainers/ranks_on_gpus.py"
    variables = slurm.variables | asked | {"DLBENCH_TEST_CORES": "8"}
    finished = train(run, log, variables, program=program, more=["--device=gpu"])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    paths = event_log.rank_paths(log)
    variables_of_ranks = [events(path, "machine")[0]["variables"] for path in paths]
    assert [variables.get("CUDA_VISIBLE_DEVICES") for variables in variables_of_ranks] == shown
    starts = [events(path, "run_start")[0] for path in paths]
    assert len({start["binding"]["gpus"][0]["uuid"] for start in starts}) == 2
    assert [start["devices"] for start in starts] == [[number] for number in numbers]
    assert [len(start["cores"]) for start in starts] == [4, 4]
    assert not set(starts[0]["cores"]) & set(starts[1]["cores"])


def test_a_task_that_dies_ends_the_others(slurm, tmp_path):
    log = tmp_path / "train.jsonl"
    run = Run(**QUICK | {"steps": 10**6, "nodes": 2, "strategy": "multiworker"})
    killer = f"(while ! grep -q step.:.5, {log}; do sleep 0.2; done; kill -9 $$) & exec "
    finished = train(run, log, slurm.variables, wrapped=killer)
    assert finished.returncode != 0
    assert all(not alive(events(p, "run_start")[0]["pid"]) for p in event_log.rank_paths(log))


def train(
    run, log, variables, wrapped=None, before=(), program="workflow_scripts/train.py", more=()
):
    variables = {**variables, "SLURM_MEM_PER_CPU": "2000"}
    python = trainer_environments.trainer_python(run.environment)
    if not (REPOSITORY / python).exists():
        pytest.skip(f"{python} is not there; dlbench environment makes it")
    trainer = [str(python), program, *run.flags(), "--log", str(log), *more]
    trainer = [*before, *trainer]
    if wrapped:
        arguments = " ".join(trainer)
        script = f'if [ "$SLURM_PROCID" = 1 ]; then {wrapped} {arguments}; fi; exec {arguments}'
        trainer = ["sh", "-c", script]
    command = plugins.load("launchers", run.launcher).command(run, trainer, None)
    if run.strategy == "horovod":
        variables["SLURM_MPI_TYPE"] = "pmix"
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def events(path, kind):
    return [event for event in event_log.read(path) if event["event"] == kind]
