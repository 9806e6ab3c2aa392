"""write_kubernetes_job: the manifests are what Kubernetes accepts, and say what a run needs."""

import json
import shlex
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from dlbench import Error
from dlbench.cluster import jobs, write_kubernetes_job
from dlbench.plan import planning, run_command
from dlbench.records import judgement
from dlbench.study import config
from support.studies.site_facts import SITE

REPOSITORY = Path(__file__).parents[3]
BLOCK = {
    "name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5,
    "nodes": 2, "strategy": "multiworker", "launcher": "kubernetes",
}  # fmt: skip
# The oldest and the newest that the schemas know of those in which all we use is stable.
VERSIONS = ["1.28", "1.37"]
PLACE = {"image": "registry.example/train@sha256:0", "claim": "study", "mount": "/study"}


def settings(site=(), **changes):
    return config.read(REPOSITORY / "config.yaml") | {
        "repeats": 1,
        "time_limit_s": 1200,
        "site": SITE | {"nodes": 4, "device": "cpu"} | dict(site),
        "matrix": [BLOCK | changes],
        "figures": [],
    }


def the_run(study):
    (run_id,) = planning.make_plan(study).runs
    return run_id


def manifests(study, run_id=None, **place):
    where = write_kubernetes_job.Place(**PLACE | {"folder": "/study/mine"} | place)
    text = write_kubernetes_job.manifest(study, run_id or the_run(study), where)
    return list(yaml.safe_load_all(text))


def pod(documents):
    return documents[-1]["spec"]["template"]["spec"]


def variables(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def gpu_study():
    """A study on GPUs, on a machine where nothing is asked for."""
    site = {"device": "gpu", "devices_per_node": 4, "cores_per_node": 32}
    return settings(site, devices_per_node=2)


GPU = {"gpu_resource": "nvidia.com/gpu"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place_", [{}, GPU], ids=["cpu", "gpu"])
def test_kubernetes_accepts_the_manifests(version, place_, place):
    documents = manifests(gpu_study() if place_ else settings(), **place_)
    assert [document["kind"] for document in documents] == ["Service", "NetworkPolicy", "Job"]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    documents[-1]["spec"]["completion_mode"] = documents[-1]["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[-1], version, strict=True)


def test_there_is_one_pod_a_node_they_know_one_another_and_one_failure_ends_all(place):
    service, policy, job = documents = manifests(settings(nodes=3))
    spec, name = job["spec"], job["metadata"]["name"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["completions"] == spec["parallelism"] == 3
    assert (spec["backoffLimit"], pod(documents)["restartPolicy"]) == (0, "Never")
    ((rule,),) = pod(documents)["affinity"]["podAntiAffinity"].values()
    assert (rule["topologyKey"], rule["labelSelector"]) == (
        "kubernetes.io/hostname", {"matchLabels": labels}
    )  # fmt: skip
    assert service["metadata"] == policy["metadata"] == job["metadata"]
    assert pod(documents)["subdomain"] == name and service["spec"]["selector"] == labels
    for container in (*pod(documents)["initContainers"], *pod(documents)["containers"]):
        hosts = variables(container)["DLBENCH_POD_HOSTS"]
        assert hosts == ",".join(f"{name}-{index}.{name}" for index in range(3))
        assert all(len(host.split(".")[0]) <= 63 for host in hosts.split(","))
    own = {"podSelector": {"matchLabels": labels}}
    assert policy["spec"] == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}


def test_the_time_limit_is_that_of_the_study_and_what_comes_before(place):
    least_s = 1200 + write_kubernetes_job.RENDEZVOUS_S
    assert least_s < pod(manifests(settings()))["activeDeadlineSeconds"] <= least_s + 900


def test_a_pod_asks_for_what_a_cluster_job_asks_for_and_its_limits_are_that(place):
    documents = manifests(gpu_study(), **GPU)
    (train,), (meet,) = pod(documents)["containers"], pod(documents)["initContainers"]
    plan = planning.make_plan(gpu_study())
    (run,) = plan.runs.values()
    asked = jobs.job_of_run(run, plan.study.site, "gpu", 1200)
    amounts = {"cpu": str(asked.cores_per_task), "memory": f"{asked.memory_mb}Mi"}
    assert meet["resources"] == {"requests": amounts, "limits": amounts}
    amounts |= {"nvidia.com/gpu": "2"}
    assert train["resources"] == {"requests": amounts, "limits": amounts}
    assert pod(documents)["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_results_are_on_the_volume_and_shared_memory_is_large(place):
    spec = pod(manifests(settings()))
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["work"]["persistentVolumeClaim"]["claimName"] == "study"
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    (train,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in train["volumeMounts"]}
    assert mounts == {"work": "/study", "shm": "/dev/shm"}
    assert train["workingDir"] == "/study/mine"


def test_pod_0_is_started_as_the_workflow_starts_the_run_and_the_others_only_train(place):
    study = settings()
    run_id = the_run(study)
    (container,) = pod(manifests(study))["containers"]
    shell, flag, script = container["command"]
    assert (shell, flag) == ("sh", "-c")
    assert script.startswith('if [ "$JOB_COMPLETION_INDEX" = 0 ]; then\n')
    _, _, first, _, others = script.splitlines()
    plan = planning.make_plan(study)
    wanted = run_command.start_run_arguments(plan, run_id)
    wanted = [w for w in wanted if not w.startswith(write_kubernetes_job.NOT_IN_PODS)]
    assert not any(word.startswith(("--skip", "--attempt", "--session")) for word in wanted)
    log = ["--log", f"results/runs/{run_id}/train.jsonl"]
    program = [".venv/bin/python", "workflow_scripts/start_run.py"]
    messages = ["--messages", f"results/logs/train/{run_id}.log"]
    assert shlex.split(first) == ["exec", *program, *log, *messages, *wanted]
    assert json.loads(next(w for w in wanted if w.startswith("--made-from="))[12:]) == (
        judgement.made_from(plan.runs[run_id])
    )
    trainer = plan.runs[run_id].command(wanted[wanted.index("--") + 1 :])
    assert "--strategy" in trainer
    program = ["envs/train/.venv/bin/python", "workflow_scripts/start_processes.py"]
    assert shlex.split(others) == ["exec", *program, "--jobs", "worker=2", "--", *trainer]


def test_what_kubernetes_would_replace_reaches_the_pod_unchanged(place):
    escaped = write_kubernetes_job._script(["$A $(B)", "$$ <a>", "$$(C)"])
    assert escaped == "'$A $$(B)' '$$$ <a>' '$$$$(C)'"


def test_pythons_of_the_image_take_the_place_of_those_on_the_volume(place):
    spec = pod(manifests(settings(), python="/opt/t/python", workflow_python="/opt/w/python"))
    _, _, first, _, others = spec["containers"][0]["command"][2].splitlines()
    assert "exec /opt/w/python workflow_scripts/start_run.py" in first
    assert " -- /opt/t/python workflow_scripts/train.py" in first
    assert others.startswith("exec /opt/t/python workflow_scripts/start_processes.py")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "parameter_server"}, "--jobs chief=1,worker=2,ps=1 --"),
        ({"strategy": "mirrored", "nodes": 1}, "--jobs worker=1 --"),
        ({"framework": "jax", "strategy": "sharded"}, "--jobs worker=2 --"),
        ({"framework": "pytorch", "strategy": "ddp", "devices_per_node": 2}, "--jobs worker=4 --"),
    ],
)
def test_strategies_whose_processes_meet_by_variables_are_jobs(changes, words, place):
    study = settings(**changes)
    script = pod(manifests(study, python="python"))["containers"][0]["command"][2]
    assert words in script.splitlines()[-1]


def test_a_strategy_that_meets_otherwise_is_refused_by_the_plan(place):
    with pytest.raises(Error, match="does not let the processes of strategy horovod find one"):
        planning.make_plan(settings(strategy="horovod"))


def test_on_this_machine_such_a_run_is_skipped_with_what_to_do(place):
    plan = planning.make_plan(settings())
    assert all("write it with" in plan.skipped[run_id] for run_id in plan.runs)


@pytest.mark.parametrize(
    ("study", "where", "message"),
    [
        (settings(launcher="local", nodes=1), {}, "which does not know the pods of a Job"),
        (gpu_study(), {}, "name the resource by which pods ask"),
        (settings(), {"gpu_resource": "nvidia.com/gpu"}, "set site.device: gpu"),
        (settings(dataset="digits"), {}, "first `snakemake data`"),
        (settings(), {"folder": "/home/me"}, "is not below /study"),
        (settings(), {"mount": "work"}, "expected an absolute path"),
    ],
)
def test_what_cannot_be_a_job_is_refused_with_the_reason(study, where, message, place):
    with pytest.raises(Error, match=message):
        manifests(study, **where)


@pytest.mark.parametrize(
    ("state", "message"),
    [(judgement.State.CURRENT, "run dlbench forget"), (judgement.State.UNREAD, "reads its log")],
)
def test_a_run_that_is_done_is_refused(state, message, place, monkeypatch):
    study = settings()
    run_id = the_run(study)
    found = state, "", {"status": "failed"}
    monkeypatch.setattr(judgement, "state_and_record", lambda *_: found)
    with pytest.raises(Error, match=message):
        manifests(study, run_id)
