"""What runs ask of a scheduler, which share a job, and what a queue would not take."""

import dataclasses
import functools
import math

import pytest

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.schedulers import Nodes, Queue
from dlbench.study.runs import Run
from support.studies.site_facts import SITE

CLUSTER = SITE | {
    "cores_per_node": 64,
    "devices_per_node": 4,
    "memory_mb_per_node": 200_000,
    "nodes": 8,
    "job": SITE["job"] | {"memory_mb_per_device": 10_000, "start_up_min": 5, "time_margin": 3},
}
QUEUE = Queue("gpu", True, True, 3600, (Nodes(4, 64, 256_000, 4),))


def run(**changes):
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5}
    return Run(**fields | changes)


def ask(
    kind="gpu",
    time_limit_s=600,
    estimate_s=None,
    attempt=1,
    site=CLUSTER,
    begins_s=None,
    wait_s=0,
    **changes,
):
    return jobs.job_of_run(
        run(**changes), site, kind, time_limit_s, estimate_s, attempt, begins_s, wait_s
    )


@pytest.mark.parametrize(
    ("changes", "nodes", "tasks", "cores_per_task", "gpus"),
    [
        ({}, 1, 1, 16, 1),
        ({"strategy": "mirrored", "devices_per_node": 4}, 1, 1, 64, 4),
        # Their launcher starts them from one task,
        ({"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 4}, 1, 1, 64, 4),
        # or takes them from the scheduler.
        ({"strategy": "horovod", "launcher": "mpirun", "devices_per_node": 4}, 1, 4, 16, 4),
        (
            {"strategy": "horovod", "launcher": "srun", "devices_per_node": 4, "nodes": 2},
            2, 8, 16, 4,
        ),
        ({"strategy": "parameter_server", "launcher": "srun", "nodes": 2}, 2, 4, 8, 1),
        ({"copies_per_node": 3}, 1, 1, 48, 3),
    ],
)  # fmt: skip
def test_nodes_tasks_cores_and_gpus_follow_from_the_run(
    changes, nodes, tasks, cores_per_task, gpus
):
    job = ask(**changes)
    found = (job.nodes, job.tasks, job.cores_per_task, job.gpus_per_node)
    assert found == (nodes, tasks, cores_per_task, gpus)


def test_cpu_devices_are_cores_and_no_gpus():
    job = ask(kind="cpu", strategy="mirrored", devices_per_node=2, threads_per_device=8)
    assert (job.cores_per_task, job.gpus_per_node) == (16, 0)


def test_memory_follows_from_the_devices_and_doubles_when_a_run_is_tried_again():
    assert ask(devices_per_node=2, strategy="mirrored").memory_mb == 21_000
    assert ask(devices_per_node=2, strategy="mirrored", attempt=2).memory_mb == 41_000
    assert ask(devices_per_node=4, strategy="mirrored", attempt=5).memory_mb == 200_000


def test_time_is_that_of_runs_like_it_with_a_margin_and_all_of_the_limit_without_or_again():
    assert ask(estimate_s=60).time_min == 3 + 5
    assert ask(estimate_s=None).time_min == 10 + 5
    assert ask(estimate_s=60, attempt=2).time_min == 10 + 5
    assert ask(estimate_s=100_000).time_min == 10 + 5


def test_time_has_what_a_run_may_wait_for_a_quiet_node_once_in_a_shared_job():
    assert ask(estimate_s=60, wait_s=90).time_min == 5 + 5  # 3 x 60 + 90 s
    assert ask(estimate_s=None, wait_s=60).time_min == 11 + 5
    assert ask(estimate_s=20, begins_s=0, wait_s=60).time_min == 2 + 5
    assert ask(estimate_s=20, begins_s=120, wait_s=60).time_min == 1


def test_a_run_that_names_its_node_asks_for_that_and_shares_its_job_with_runs_there():
    job = ask(node="n3")
    assert (jobs.resources(job)["node"], jobs.resources(ask())["node"]) == ("n3", "")
    runs = [run(node=node, repeat=repeat) for repeat in (1, 2) for node in ("n1", "n2")]

    def of(one, begins_s):
        return jobs.job_of_run(one, CLUSTER, "gpu", 600, 30.0, 1, begins_s)

    found = jobs.bundle_runs(runs, of, lambda run: 30.0, bundle_min=1)
    assert [name for name, _ in found.values()] == ["bundle1", "bundle2"] * 2


def test_runs_that_name_their_node_share_its_job_before_any_was_trained():
    models = ("resnet50", "vit_b16", "gpt2_small")
    runs = [run(node=f"n{n}", model=model) for model in models for n in (1, 2)]

    def of(one, begins_s):
        return jobs.job_of_run(one, CLUSTER, "gpu", 600, None, 1, begins_s)

    found = jobs.bundle_runs(runs, of, lambda run: None, bundle_min=60)
    assert [name for name, _ in found.values()] == ["bundle1", "bundle2"] * 3
    # Each with all of its time limit, and the start once.
    minutes = [of(one, found[one.id][1]).time_min for one in runs if one.node == "n1"]
    assert minutes == [15, 10, 10]
    full = jobs.bundle_runs(runs, of, lambda run: None, bundle_min=20)
    assert [name for name, _ in full.values()] == ["bundle1", "bundle2"] * 2 + [
        "bundle3",
        "bundle4",
    ]
    limited = jobs.bundle_runs(runs, of, lambda run: None, bundle_min=60, limit_min=30)
    assert len({name for name, _ in limited.values()}) == 4


def test_baselines_join_the_job_of_runs_that_requests_their_node_and_as_much_of_it():
    runs = [run(node=f"n{n}", model=model) for model in ("resnet50", "vit_b16") for n in (1, 2)]

    def of(one, begins_s):
        return jobs.job_of_run(one, CLUSTER, "gpu", 600, None, 1, begins_s)

    def bundled(limit_min=None, **baselines):
        after = {name: functools.partial(of, one) for name, one in baselines.items()}
        found = jobs.bundle_runs(runs, of, lambda run: None, 60, limit_min, after)
        return {name: place for name, place in found.items() if name in baselines}

    found = bundled(one=run(node="n1", steps=1), two=run(node="n2"), again=run(node="n1", repeat=2))
    assert found == {
        "one": ("bundle1", 1200), "two": ("bundle2", 1200), "again": ("bundle1", 1800),
    }  # fmt: skip
    # The start is requested once.
    assert of(run(node="n1"), found["one"][1]).time_min == 10
    # Not of another node, of more GPUs, of no node, nor beyond the limit of the queue.
    wide = run(node="n1", strategy="mirrored", devices_per_node=2)
    assert bundled(wide=wide, other=run(node="n3"), anywhere=run()) == {}
    assert bundled(limit_min=30, one=run(node="n1"), late=run(node="n1", repeat=2)) == {}
    assert bundled(limit_min=40, one=run(node="n1"), late=run(node="n1", repeat=2)).keys() == {
        "one"
    }


def test_short_runs_of_one_shape_share_a_job_until_it_is_long_enough():
    short = [run(repeat=n) for n in range(1, 6)]
    wide = [run(repeat=n, strategy="mirrored", devices_per_node=2) for n in (1, 2)]
    unknown = [run(repeat=1, model="alexnet")]
    seconds = {**dict.fromkeys(short + wide, 30.0), unknown[0]: None}

    def of(one, begins_s):
        return jobs.job_of_run(one, CLUSTER, "gpu", 600, seconds[one], 1, begins_s)

    mixed = [short[0], wide[0], *short[1:], wide[1], *unknown]
    found = jobs.bundle_runs(mixed, of, seconds.get, bundle_min=1)
    assert [found[r.id] for r in short] == [
        ("bundle1", 0), ("bundle1", 90), ("bundle3", 0), ("bundle3", 90), ("bundle4", 0),
    ]  # fmt: skip
    assert [found[r.id] for r in wide] == [("bundle2", 0), ("bundle2", 90)]
    assert unknown[0].id not in found
    assert jobs.bundle_runs(mixed, of, seconds.get, bundle_min=0) == {}


def test_the_runs_of_a_shared_job_fit_into_the_command_that_submits_it():
    runs = [run(repeat=n, model="m" * 100) for n in range(1, 1001)]
    found = jobs.bundle_runs(runs, lambda *_: ask(estimate_s=1), lambda _: 1.0, bundle_min=60)
    assert len(found) == len(runs)
    by_job = {}
    for run_id, (name, _) in found.items():
        by_job.setdefault(name, []).append(f"train:run_id={run_id}")
    assert len(by_job) == 2
    # As sh gets sbatch --wrap="...", with 30 kB to spare for all else.
    assert all(len(repr(targets)) < 131_072 - 30_000 for targets in by_job.values())


def test_a_shared_job_asks_for_its_start_once_and_stays_within_the_limit_of_its_queue():
    runs = [run(repeat=n) for n in range(1, 11)]

    def of(one, begins_s):
        return ask(estimate_s=20, begins_s=begins_s)

    assert [of(None, begins_s).time_min for begins_s in (None, 0, 60, 420)] == [6, 6, 1, 1]
    found = jobs.bundle_runs(runs, of, lambda _: 20.0, bundle_min=60, limit_min=8)
    names = [found[r.id][0] for r in runs]
    assert [names.count(name) for name in dict.fromkeys(names)] == [3, 3, 3, 1]
    assert ask(estimate_s=20, attempt=2, begins_s=60).time_min == 1


def test_a_shared_job_asks_for_the_seconds_of_its_runs_and_not_for_a_minute_of_each():
    runs = [run(repeat=n) for n in range(1, 41)]
    each_s = CLUSTER["job"]["time_margin"] * 1.5

    def of(one, begins_s):
        return ask(estimate_s=1.5, begins_s=begins_s, wait_s=60)

    found = jobs.bundle_runs(runs, of, lambda _: 1.5, bundle_min=60)
    minutes = [of(one, found[one.id][1]).time_min for one in runs]
    assert len({name for name, _ in found.values()}) == 1
    # The first one's start, and its wait for a quiet node: the others look once.
    start_min = CLUSTER["job"]["start_up_min"]
    assert sum(minutes) == start_min + math.ceil((60 + 40 * each_s) / 60) < 15
    assert sum(of(one, None).time_min for one in runs) == 40 * (start_min + 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus_per_node": 8}, "asks for 8 GPUs per node, and gpu has 4"),
        ({"nodes": 5, "tasks": 5}, "asks for 5 nodes, and gpu has 4"),
        ({"time_min": 61}, "asks for 61 minutes, and gpu has 60 (lower time_limit_s"),
        ({"memory_mb": 300_000}, "MiB of memory per node, and gpu has 256000"),
        ({"cores_per_task": 65}, "asks for 65 cores per node, and gpu has 64"),
    ],
)
def test_what_a_queue_would_not_take_is_said_before_it_is_submitted(changes, words):
    job = dataclasses.replace(ask(), **changes)
    with pytest.raises(Error) as caught:
        jobs.check([("a run", job), ("b run", job)], {"gpu": QUEUE}, "gpu")
    assert words in str(caught.value) and "2 jobs, as a run" in str(caught.value)
    jobs.check([("a run", ask())], {"gpu": QUEUE}, None)


UNLIKE = dataclasses.replace(QUEUE, nodes=(Nodes(3, 64, 256_000, 0), Nodes(1, 16, 64_000, 4)))


def test_what_is_asked_of_a_node_one_and_the_same_node_must_have():
    job = dataclasses.replace(ask(), nodes=1, tasks=1, cores_per_task=16, gpus_per_node=4)
    job = dataclasses.replace(job, memory_mb=64_000)
    jobs.check([("a run", job)], {"gpu": UNLIKE}, "gpu")
    for changes in ({"cores_per_task": 17}, {"memory_mb": 65_000}, {"nodes": 2, "tasks": 2}):
        with pytest.raises(
            Error, match=r"and gpu has \d such \(3 nodes of 64 cores, 256000 MiB, 0"
        ):
            jobs.check([("a run", dataclasses.replace(job, **changes))], {"gpu": UNLIKE}, "gpu")


def test_a_job_asks_for_no_more_memory_than_the_nodes_with_its_gpus_have():
    job = dataclasses.replace(ask(), memory_mb=300_000, cores_per_task=1, gpus_per_node=4)
    assert jobs.limit_memory(job, UNLIKE).memory_mb == 64_000
    assert jobs.limit_memory(dataclasses.replace(job, gpus_per_node=0), UNLIKE).memory_mb == 256_000
    assert jobs.limit_memory(job, Queue("unknown")).memory_mb == 300_000


def test_a_queue_that_is_not_there_or_down_is_named():
    with pytest.raises(Error, match=r"no partition or queue 'gpus' \(did you mean 'gpu'\?\)"):
        jobs.check([], {"gpu": QUEUE}, "gpus")
    with pytest.raises(Error, match=r"^gpu is down: the scheduler starts no jobs in it now$"):
        jobs.check([], {"gpu": dataclasses.replace(QUEUE, up=False)}, "gpu")


def test_a_queue_that_takes_the_jobs_is_named_beside_the_one_that_does_not():
    queues = {
        "gpu": dataclasses.replace(QUEUE, nodes=(Nodes(4, 64, 256_000, 4),), nodes_per_job=1),
        "long": dataclasses.replace(QUEUE, name="long", time_limit_s=7200),
        "down": dataclasses.replace(QUEUE, name="down", time_limit_s=7200, up=False),
        "cpu": Queue("cpu", nodes=(Nodes(9, 64, 256_000, 0),)),
    }
    asked = [("a run", ask(nodes=2, strategy="multiworker", launcher="srun"))]
    with pytest.raises(Error) as refused:
        jobs.check(asked, queues, "gpu")
    assert str(refused.value) == (
        "asks for 2 nodes for one job, and gpu has 1 (lower site.nodes, or leave such runs out): "
        "1 job, as a run; long would take all jobs"
    )
    queues["gpu"] = dataclasses.replace(queues["gpu"], nodes_per_job=2)
    assert jobs.check(asked, queues, "gpu") == queues["gpu"]


def test_nothing_is_checked_where_the_scheduler_chooses_the_queue():
    jobs.check([("a run", ask())], {"one": Queue("one", nodes=(Nodes(1, 0),))}, None)


def test_schedulers_get_plain_values_and_the_executor_slurm_only_several_tasks_as_they_are():
    asked = jobs.resources(ask())
    assert asked.pop("mpi") is None and all(isinstance(one, (int, str)) for one in asked.values())
    assert jobs.resources(ask(strategy="multiworker", launcher="srun", nodes=2))["mpi"] == 1


def test_the_executor_slurm_gets_what_it_has_no_resource_for_as_options():
    assert jobs.resources(ask(kind="cpu"))["slurm_extra"] == "--exclusive"
    of_gpus = {"gpu_request": "gpu:a100", "exclusive": False, "extra": "--hint=nomt"}
    site = CLUSTER | {"job": CLUSTER["job"] | of_gpus}
    wide = {"strategy": "horovod", "launcher": "srun", "devices_per_node": 4, "nodes": 2}
    asked = jobs.resources(ask(site=site, node="n3", **wide))["slurm_extra"]
    assert asked == "--ntasks-per-node=4 --gpus-per-node=a100:4 --nodelist=n3 --hint=nomt"


@pytest.mark.parametrize(
    ("program", "first_s", "forgets_after_s", "bundle_min", "remedy"),
    [
        ("sacct", 40, None, 0, ""),
        ("sacct", 40, None, 30, "set it to 0, or take profiles/slurm"),
        ("sacct", 40, 300, 0, "add --slurm-status-command squeue"),
        ("squeue", 40, 120, 0, ""),
        ("squeue", 40, 60, 0, "add --slurm-init-seconds-before-status-checks 20"),
    ],
)
def test_what_the_executor_slurm_could_not_start_or_never_see_end_is_refused(
    program, first_s, forgets_after_s, bundle_min, remedy
):
    settings = {"status_command": program, "init_seconds_before_status_checks": first_s}
    reason = jobs.describe_settings(settings, forgets_after_s, bundle_min)
    assert reason.endswith(remedy) and bool(reason) == bool(remedy)
