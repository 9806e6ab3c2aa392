"""kubernetes_job: the manifests are what Kubernetes accepts, and say what a run needs."""

import dataclasses
import json
import shlex
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from dlbench import Error
from dlbench.cluster import jobs, write_kubernetes_job
from dlbench.launchers import kubernetes
from dlbench.plan import planning, run_command
from dlbench.records import judgement, staleness
from dlbench.study import config, runs
from support.studies.site_facts import SITE

REPOSITORY = Path(__file__).parents[3]
BLOCK = {
    "name": "block",
    "model": "lenet5",
    "dataset": "synthetic",
    "batch_per_device": 8,
    "steps": 5,
    "nodes": 2,
    "strategy": "multiworker",
    "launcher": "kubernetes",
}
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
    with write_kubernetes_job.as_in_a_pod():
        (run_id,) = planning.make_plan(study).runs
    return run_id


def manifests(study, run_id=None, **place):
    where = write_kubernetes_job.Place(**PLACE | {"folder": "/study/mine"} | place)
    return write_kubernetes_job.manifests(study, run_id or the_run(study), where)


def pod(documents):
    return documents[-1]["spec"]["template"]["spec"]


def variables(container):
    return {entry["name"]: entry["value"] for entry in container["env"]}


def gpu_study():
    """A study on GPUs, on a machine where nothing is asked for."""
    site = {"device": "gpu", "devices_per_node": 4, "cores_per_node": 32}
    return settings(site, devices_per_node=2)


GPU = {
    "gpu_resource": "nvidia.com/gpu",
    "service_account": "trainer",
    "node_selector": {"node.kubernetes.io/instance-type": "large"},
    "namespace": "studies",
    "environment": {"HOROVOD_GLOO_IFACE": "eth1"},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place_", [{}, GPU], ids=["cpu", "gpu"])
def test_kubernetes_accepts_the_manifests(version, place_, place):
    study = gpu_study() if place_ else settings()
    documents = manifests(study, **place_)
    assert [document["kind"] for document in documents] == ["Service", "NetworkPolicy", "Job"]
    for document in yaml.safe_load_all(write_kubernetes_job.text(documents)):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_notice_a_mistake(place):
    *_, job = manifests(settings())
    job["spec"]["completion_mode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def test_there_is_one_pod_a_node_and_one_failure_ends_all(place):
    documents = manifests(settings(nodes=3))
    spec = documents[-1]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 3
    assert spec["backoffLimit"] == 0
    assert pod(documents)["restartPolicy"] == "Never"
    ((rule,),) = pod(documents)["affinity"]["podAntiAffinity"].values()
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_the_pods_know_one_another_by_the_service(place):
    service, _, job = documents = manifests(settings())
    name = service["metadata"]["name"]
    assert name == job["metadata"]["name"] == pod(documents)["subdomain"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == job["spec"]["template"]["metadata"]["labels"]
    for container in (*pod(documents)["initContainers"], *pod(documents)["containers"]):
        hosts = variables(container)["DLBENCH_POD_HOSTS"]
        assert hosts == f"{name}-0.{name},{name}-1.{name}"
        assert all(len(host.split(".")[0]) <= 63 for host in hosts.split(","))


def test_only_the_pods_of_a_run_reach_one_another(place):
    _, policy, job = manifests(settings())
    own = {"podSelector": {"matchLabels": job["spec"]["template"]["metadata"]["labels"]}}
    assert policy["spec"] == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    assert policy["metadata"] == job["metadata"]


def test_the_time_limit_is_that_of_the_study_and_what_comes_before(place):
    seconds = pod(manifests(settings()))["activeDeadlineSeconds"]
    assert (
        1200 + write_kubernetes_job.RENDEZVOUS_S
        < seconds
        <= 1200 + write_kubernetes_job.RENDEZVOUS_S + 900
    )


def test_requests_are_the_limits(place):
    documents = manifests(gpu_study(), **GPU)
    (train,), (meet,) = pod(documents)["containers"], pod(documents)["initContainers"]
    for container in (train, meet):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["resources"]["limits"]["cpu"].isdecimal()
    assert train["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in meet["resources"]["limits"]
    assert pod(documents)["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert pod(documents)["nodeSelector"] == GPU["node_selector"]
    assert pod(documents)["serviceAccountName"] == "trainer"
    assert variables(train)["HOROVOD_GLOO_IFACE"] == "eth1"
    assert {document["metadata"]["namespace"] for document in documents} == {"studies"}


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
    with write_kubernetes_job.as_in_a_pod():
        plan = planning.make_plan(study)
        wanted = run_command.start_run_arguments(plan, run_id, 1)
    # Without numbers of attempts: there is one.
    wanted = [word for word in wanted if not word.startswith("--attempt")]
    log = f"results/runs/{run_id}/train.jsonl"
    assert shlex.split(first) == [
        "exec",
        ".venv/bin/python",
        "workflow_scripts/start_run.py",
        "--log",
        log,
        "--messages",
        f"results/logs/train/{run_id}.log",
        *wanted,
    ]
    assert json.loads(next(w for w in wanted if w.startswith("--made-from="))[12:]) == (
        staleness.made_from(plan.runs[run_id])
    )
    trainer = plan.runs[run_id].command(wanted[wanted.index("--") + 1 :])
    assert "--strategy" in trainer
    assert shlex.split(others) == [
        "exec",
        "envs/train/.venv/bin/python",
        "workflow_scripts/start_pod.py",
        "--jobs",
        "worker=2",
        "--finding",
        "tf_config",
        "--",
        *trainer,
    ]


def test_what_kubernetes_would_replace_reaches_the_pod_unchanged(place):
    escaped = write_kubernetes_job._escaped(["$A $(B) $$ $$(C)"])
    assert escaped == ["$A $$(B) $$$ $$$$(C)"]


def test_pythons_of_the_image_take_the_place_of_those_on_the_volume(place):
    spec = pod(manifests(settings(), python="/opt/t/python", workflow_python="/opt/w/python"))
    _, _, first, _, others = spec["containers"][0]["command"][2].splitlines()
    assert "exec /opt/w/python workflow_scripts/start_run.py" in first
    assert " -- /opt/t/python workflow_scripts/train.py" in first
    assert others.startswith("exec /opt/t/python workflow_scripts/start_pod.py")
    assert spec["initContainers"][0]["command"][0] == "/opt/t/python"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "horovod", "devices_per_node": 2}, "--jobs worker=4 --finding horovod"),
        ({"strategy": "parameter_server"}, "--jobs chief=1,worker=2,ps=1 --finding tf_config"),
        ({"strategy": "mirrored", "nodes": 1}, "--jobs worker=1 --finding nothing"),
        ({"framework": "jax", "strategy": "sharded"}, "--jobs worker=2 --finding tf_config"),
        ({"framework": "pytorch", "strategy": "ddp"}, "--jobs worker=2 --finding tf_config"),
        (
            {"framework": "jax", "strategy": "sharded", "nodes": 1},
            "--jobs worker=1 --finding nothing",
        ),
    ],
)
def test_each_strategy_finds_its_processes_in_its_way(changes, words, place):
    run = dataclasses.replace(
        runs.Run(**{k: v for k, v in BLOCK.items() if k != "name"}), **changes
    )
    assert words in " ".join(kubernetes.command(run, ["python", "train.py"], None))


def test_on_this_machine_such_a_run_is_skipped_with_what_to_do(place, monkeypatch):
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
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
        (settings(), {"namespace": "My_Space"}, "namespace: 'My_Space' is no name"),
        (settings(), {"claim": "a b"}, "claim: 'a b' is no name"),
        (settings(), {"image": "a b"}, "expected a reference"),
        (settings(), {"gpu_resource": "a/b/c"}, "GPU resource: 'a/b/c' is no name"),
        (settings(), {"node_selector": {"a b": "c"}}, "node selector: 'a b' is no name"),
    ],
)
def test_what_cannot_be_a_job_is_refused_with_the_reason(study, where, message, place):
    with pytest.raises(Error, match=message):
        manifests(study, **where)


def test_an_unknown_run_is_refused_with_the_nearest_name(place):
    study = settings()
    run_id = the_run(study)
    with pytest.raises(Error, match=f"did you mean '{run_id}'"):
        manifests(study, run_id + "x")


def test_more_nodes_than_the_site_has_are_refused(place):
    study = settings(nodes=2)
    run_id = the_run(study)
    other = BLOCK | {"nodes": 1, "name": "other"}
    few = study | {"site": study["site"] | {"nodes": 1}, "matrix": [*study["matrix"], other]}
    with pytest.raises(Error, match="needs 2 nodes; this site has 1"):
        manifests(few, run_id)


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


def test_what_a_pod_asks_for_is_what_a_cluster_job_asks_for(place):
    study = settings(devices_per_node=2)
    with write_kubernetes_job.as_in_a_pod():
        plan = planning.make_plan(study)
    (run,) = plan.runs.values()
    asked = jobs.job_of_run(run, plan.study.site, "cpu", 1200)
    limits = pod(manifests(study))["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "2", "memory": f"{asked.memory_mb}Mi"}
