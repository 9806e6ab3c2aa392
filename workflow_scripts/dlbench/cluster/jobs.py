"""The jobs of a plan on a cluster: what runs request from a scheduler, and which share a job.

- If the launcher's processes are tasks of the scheduler, the job has a task for each; otherwise it
  has one task for each node, which starts the processes there.
- Time: a multiple of what similar runs took (dlbench/records/costs.py), plus the longest wait for a
  quiet node, plus the start. The first run of its kind and further attempts get all of
  time_limit_s.
- Memory: an amount for each device, doubled for each further attempt, at most that of a node.
- Runs with the same request may share a job and are trained one after another. The job's minutes
  are the sum of their seconds, rounded up once. Runs that name their node share one also before
  anything like them was trained: each is counted with its whole time limit. Baselines of the same
  nodes join it, so that each node is waited for once.
"""

import dataclasses
import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.common import phrases, plugins
from dlbench.plan import baselines, standing
from dlbench.plan.plan import Plan
from dlbench.records import costs, run_record
from dlbench.schedulers import Job, Nodes, Queue
from dlbench.study.runs import Run
from dlbench.trainer import engine

CONVERSION = "conversion of data"
# sbatch gets the ids of all runs of a job in one argument, for which Linux allows 128 KiB.
MAX_IDS_BYTES = 100_000
WORKFLOW_MB = 1000  # for two Snakemakes (400 MB measured) and the supervisor of the run


def job_of_run(
    run: Run,
    site: Mapping[str, Any],
    kind: str,
    time_limit_s: float,
    estimate_s: float | None = None,
    attempt: int = 1,
    begins_s: float | None = None,
    wait_s: float = 0,
) -> Job:
    """The Job of a run.

    Args:
        site: the config's `site`.
        kind: of devices, cpu or gpu.
        estimate_s: the time that runs like it took; None if none has been trained.
        begins_s: seconds that the runs before it take in a shared job; None if it has its own job.
        wait_s: the longest wait for a quiet node before the run starts. Only the first run of a
            shared job is given it.
    """
    settings = site["job"]
    devices = run.devices_per_node * run.copies_per_node
    tasks = _tasks(run)
    cores = devices * run.threads_per_device
    if kind == "gpu" and site["cores_per_node"] != "auto":
        # The GPUs' share of the cores of a node, which read and prepare the data.
        cores = max(cores, site["cores_per_node"] * devices // site["devices_per_node"])
    memory_mb = WORKFLOW_MB + settings["memory_mb_per_device"] * devices * 2 ** (attempt - 1)
    time_s = time_limit_s
    # All runs of a shared job are tried again, so its estimated time still suffices.
    if estimate_s is not None and (attempt == 1 or begins_s is not None):
        time_s = min(time_limit_s, estimate_s * settings["time_margin"])
    # When a shared job is tried again, finished runs request no time.
    begins_s, follows = (begins_s if attempt == 1 else 0) or 0, bool(begins_s)
    time_s += 0 if follows else wait_s
    minutes = math.ceil((begins_s + time_s) / 60) - math.ceil(begins_s / 60)
    return Job(
        nodes=run.nodes,
        tasks=tasks,
        cores_per_task=math.ceil(cores / math.ceil(tasks / run.nodes)),
        memory_mb=min(memory_mb, site["memory_mb_per_node"] or memory_mb),
        gpus_per_node=devices if kind == "gpu" else 0,
        time_min=minutes + (0 if follows else settings["start_up_min"]),
        exclusive=settings["exclusive"],
        gpu_request=settings["gpu_request"],
        extra=settings["extra"],
        node=run.node or "",
        time_s=time_s,
    )


def describe_auto(site: Mapping[str, Any]) -> str:
    """Why a cluster's `site` needs more values: some are auto, which counts this machine; or ""."""
    keys = ["device", *(["devices_per_node"] if site["device"] != "cpu" else []), "cores_per_node"]
    names = ", ".join(f"site.{key}" for key in keys if site[key] == "auto")
    return names and (
        f"{names}: auto counts what this machine has, and runs are trained on others; say in "
        "site.yaml what a node has (docs/clusters.md)"
    )


def job_of_conversion(profile_value: Callable[[str, str], Any]) -> Job:
    """The Job of a step that does not train, with memory and time of the profile."""
    values = (str(profile_value("convert_dataset", name)) for name in ("mem_mb", "runtime"))
    # Any other value is an expression, which Snakemake evaluates when it submits the job.
    memory_mb, time_min = (int(value) if value.isdecimal() else 0 for value in values)
    return Job(1, 1, 1, memory_mb, 0, time_min, False, "", "")


def resources(job: Job) -> dict[str, Any]:
    """A job as resources of Snakemake, which cluster_job.py and the executor slurm read."""
    gpus = ":".join([*job.gpu_request.split(":")[1:], str(job.gpus_per_node)])
    options = {
        f"--ntasks-per-node={job.tasks_per_node}": job.tasks > 1,
        f"--gpus-per-node={gpus}": job.gpus_per_node,
        "--exclusive": job.exclusive,
        f"--nodelist={job.node}": job.node,
        job.extra: job.extra,
    }
    return {
        "nodes": job.nodes,
        "tasks": job.tasks,
        # The executor slurm starts a job with it as it is, instead of in one task on one node.
        "mpi": 1 if job.tasks > 1 else None,
        "cpus_per_task": job.cores_per_task,
        "mem_mb": job.memory_mb,
        "runtime": job.time_min,
        "gpus_per_node": job.gpus_per_node,
        "exclusive": int(job.exclusive),
        "gpu_request": job.gpu_request,
        "extra": job.extra,
        "node": job.node,
        # What the executor slurm has no other resources for; its `gpu` divides tasks by GPUs.
        "slurm_extra": " ".join(option for option, is_needed in options.items() if is_needed),
    }


@dataclass
class Bundle:
    """A job that several runs share: that of its first run, their estimated and requested time."""

    name: str
    job: Job
    estimated_s: float = 0.0
    requested_s: float = 0.0
    requested_min: int = 0
    ids_bytes: int = 0


def bundle_runs(
    runs: Iterable[Run],
    job_of: Callable[[Run, float], Job],
    estimate_of: Callable[[Run], float | None],
    bundle_min: float,
    limit_min: float | None = None,
    baselines: Mapping[str, Callable[[float], Job]] | None = None,
) -> dict[str, tuple[str, float]]:
    """Put runs into shared jobs: {run id: (name of the bundle, seconds of the runs before it)}.

    The same of baselines, by their names, which have a node and no job of their own.

    Args:
        runs: in the order of their execution.
        job_of: (run, begins_s) -> Job; the jobs of a bundle differ in time only.
        estimate_of: run -> seconds, or None; runs without an estimate share no job, unless they
            name their node: then they wait for that one in any case, and all that is measured
            there can be in one job.
        bundle_min: minutes of training after which a bundle is full.
        limit_min: time limit of jobs; None for no limit.
        baselines: {name: begins_s -> Job} of those that may join a bundle.
    """
    places: dict[str, tuple[str, float]] = {}
    last: dict[tuple, Bundle] = {}
    bundles: list[Bundle] = []
    for run in runs if bundle_min else ():
        seconds = estimate_of(run)
        if seconds is None and run.node:
            seconds = job_of(run, 0).time_s
        if seconds is None:
            continue
        shape = _shape(run, job_of(run, 0))
        bundle = last.get(shape)
        full = bundle is not None and (
            bundle.estimated_s >= bundle_min * 60
            or bundle.ids_bytes + _id_bytes(run) > MAX_IDS_BYTES
        )
        if bundle and limit_min:
            full |= bundle.requested_min + job_of(run, bundle.requested_s).time_min > limit_min
        if not bundle or full:
            bundle = last[shape] = Bundle(f"bundle{len(bundles) + 1}", job_of(run, 0))
            bundles.append(bundle)
        places[run.id] = bundle.name, bundle.requested_s
        job = job_of(run, bundle.requested_s)
        bundle.requested_min += job.time_min
        bundle.requested_s += job.time_s
        bundle.estimated_s += seconds
        bundle.ids_bytes += _id_bytes(run)
    by_node: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        by_node.setdefault(bundle.job.node, []).append(bundle)
    for name, job_after in (baselines or {}).items():
        request = job_after(0)
        for bundle in by_node.get(request.node, ()) if request.node else ():
            job = job_after(bundle.requested_s)
            late = limit_min and bundle.requested_min + job.time_min > limit_min
            if not late and _contains(bundle.job, job):
                places[name] = bundle.name, bundle.requested_s
                bundle.requested_min += job.time_min
                bundle.requested_s += job.time_s
                break
    return places


def _contains(job, other):
    """Whether a job requests as much of its nodes as another one, or more."""
    amounts = ("tasks", "cores_per_task", "memory_mb", "gpus_per_node")
    return all(getattr(other, name) <= getattr(job, name) for name in amounts)


def _id_bytes(run):
    return len(f" 'train:run_id={run.id}'")


def limit_memory(job: Job, queue: Queue) -> Job:
    """A job whose memory is limited to that of the nodes with its cores and GPUs."""
    fitting = [n for n in queue.nodes if n.have(**{**job.per_node, "memory_mb": 0})]
    maximum = replace(queue, nodes=tuple(fitting)).maximum("memory_mb")
    return replace(job, memory_mb=min(job.memory_mb, maximum)) if maximum else job


def by_queue(
    plan: Plan,
    request: Callable[[Run], Job],
    profile_value: Callable[[str, str], Any],
    resource: str,
) -> Iterator[tuple[list[tuple[str, Job]], str | None]]:
    """Yield ([(label, Job)], name of their queue) of the jobs that train, then of conversion.

    `resource`: the one by which the profile names queues.
    """
    searches = [search for search, why_not in plan.searches.values() if not why_not]
    training = [(plan.labels[run.id], run) for run in plan.to_train]
    training += [(search.label(), search.run) for search in searches]
    is_known = not describe_auto(plan.study.site)
    labelled = [(label, request(run)) for label, run in training if is_known]
    yield labelled, profile_value("train", resource)
    if plan.datasets:
        conversion = [(CONVERSION, job_of_conversion(profile_value))]
        yield conversion, profile_value("convert_dataset", resource)


def check(
    labelled_jobs: Sequence[tuple[str, Job]],
    queues: Mapping[str, Queue],
    queue_name: str | None,
    unsupported_jobs: Callable[[Iterable[Job]], Iterable[tuple[str, Job]]] | None = None,
) -> Queue | None:
    """Check that a queue would accept jobs, before the first is submitted.

    `queue_name`: None for the scheduler's default. `unsupported_jobs`: of the scheduler's file, if
    it has one. Returns the Queue; None if the scheduler chooses one. Raises Error: it would not
    accept them; with a line for each reason.
    """
    name = queue_name or next((queue.name for queue in queues.values() if queue.default), None)
    if name is None:
        return None
    if name not in queues:
        raise Error(
            f"the scheduler has no partition or queue {name!r}"
            f"{phrases.did_you_mean(name, queues)}; "
            f"there are: {', '.join(sorted(queues))}. It is named in the profile"
        )
    queue = queues[name]
    if not queue.up:
        raise Error(f"{name} is down: the scheduler starts no jobs in it now")
    unsupported = unsupported_jobs([job for _, job in labelled_jobs]) if unsupported_jobs else ()
    if lines := problems(labelled_jobs, queue, unsupported):
        others = (other for other in queues.values() if other.up)
        fitting = [other.name for other in others if not problems(labelled_jobs, other)]
        hint = f"; {' or '.join(fitting)} would take all jobs" if fitting else ""
        raise Error("\n".join(f"{line}{hint}" for line in lines))
    return queue


def problems(
    jobs: Sequence[tuple[str, Job]], queue: Queue, refused: Iterable[tuple[str, Job]] = ()
) -> list[str]:
    """Lines on why a queue, or a rule, would reject labelled jobs, each with their number.

    `refused`: (reason, Job) of those that the scheduler rejects itself.
    """
    found = [(problem, label) for label, job in jobs for problem in _problems(job, queue)]
    found += [(why, label) for why, job in refused for label, other in jobs if other is job]
    labels: dict[str, list[str]] = {}
    for problem, label in found:
        labels.setdefault(problem, []).append(label)
    return [f"{why}: {phrases.counted(len(of), 'job')}, as {of[0]}" for why, of in labels.items()]


def _tasks(run):
    launcher = plugins.load("launchers", run.launcher)
    if not launcher.TAKES_TASKS or run.copies_per_node > 1:
        return run.nodes
    strategy = engine.strategy_of(run)
    return sum(strategy.jobs(run).values())


def _shape(run, job):
    size = job.nodes, job.tasks, job.cores_per_task, job.gpus_per_node, job.memory_mb, job.node
    return *size, run.launcher


def _problems(job, queue):
    """Why a queue would reject a job. Jobs with the same request get the same message."""
    per_node = job.per_node
    limits = (
        ("nodes", job.nodes, queue.count() if queue.nodes else None, "lower site.nodes"),
        ("nodes for one job", job.nodes, queue.nodes_per_job, "lower site.nodes"),
        (
            "cores for one job", job.cores_per_task * job.tasks, queue.cores_per_job,
            "lower threads_per_device",
        ),
        (
            "GPUs for one job", job.gpus_per_node * job.nodes, queue.gpus_per_job,
            "lower devices_per_node",
        ),
        (
            "GPUs per node", per_node["gpus"], queue.maximum("gpus"),
            "correct site.devices_per_node",
        ),
        (
            "cores per node", per_node["cores"], queue.maximum("cores"),
            "correct site.cores_per_node",
        ),
        (
            "MiB of memory per node", per_node["memory_mb"], queue.maximum("memory_mb"),
            "lower site.job.memory_mb_per_device or set site.memory_mb_per_node",
        ),
        (
            "minutes", job.time_min, queue.time_limit_s and queue.time_limit_s // 60,
            "lower time_limit_s or, for jobs that train nothing, the profile's runtime",
        ),
    )  # fmt: skip
    exceeded = [limit for limit in limits if limit[2] is not None and limit[1] > limit[2]]
    for resource, requested, offered, remedy in exceeded:
        yield (
            f"asks for {requested:g} {resource}, and {queue.name} has {offered:g} ({remedy}, "
            "or leave such runs out)"
        )
    if queue.nodes and not exceeded and queue.count(**per_node) < job.nodes:
        yield (
            f"asks for {Nodes(job.nodes, **per_node)}, and {queue.name} has "
            f"{queue.count(**per_node)} such ({queue.kinds}): say in site.yaml what one kind of "
            "node has, or leave such runs out"
        )


def scheduler(executor: str | None, settings: Mapping[str, Any]) -> str | None:
    """The scheduler to which jobs are submitted, as the name of a file in schedulers/; or None.

    `executor`: of Snakemake; None if jobs run on this machine. `settings`: of the executor; the
    submit command of cluster-generic names the scheduler.
    """
    words = {"cluster-generic": settings.get("submit_cmd"), "slurm": "slurm"}.get(executor or "")
    names = re.findall(r"\w+", words or "")
    return next((name for name in names if name in plugins.names("schedulers")), None)


def describe_python() -> str:
    """Why jobs cannot start this Python; "" if they can."""
    if not re.search(r"\s", sys.executable):
        return ""
    return (
        f"Snakemake writes the path of its Python into the scripts of jobs as it is, and "
        f"{sys.executable} has a space, so that no job would start: move the clone to a path "
        "without spaces"
    )


def describe_settings(
    settings: Mapping[str, Any], forgets_after_s: int | None, bundle_min: float
) -> str:
    """Why an executor could not start jobs, or not see that they have ended; "" if it could.

    The executor slurm uses sacct, or squeue if jobs that have ended are known for three times the
    seconds before it first asks. `settings`: of the executor. `forgets_after_s`: for which a Slurm
    without accounting knows jobs that have ended; None with it. `bundle_min`: of `site.job`.
    """
    if settings.get("submit_cmd") and not settings.get("status_cmd"):
        return (
            "the profile submits by cluster_job.py and has no cluster-generic-status-cmd, without "
            "which nobody would see that a job was killed: take jobscript and the lines "
            "cluster-generic-... from the profile of this scheduler in profiles/"
        )
    if "status_command" in settings and bundle_min:
        return (
            f"site.job.bundle_min is {bundle_min:g}, and the executor slurm asks for the nodes of "
            "all runs that share a job at once: set it to 0, or take profiles/slurm"
        )
    if "status_command" not in settings or forgets_after_s is None:
        return ""
    if settings["status_command"] == "sacct":
        return (
            "this Slurm keeps no accounts, so the executor slurm would never see its jobs end: "
            "add --slurm-status-command squeue"
        )
    if forgets_after_s < 3 * settings["init_seconds_before_status_checks"]:
        return (
            f"this Slurm keeps no accounts and forgets jobs {forgets_after_s} s after their end: "
            f"add --slurm-init-seconds-before-status-checks {forgets_after_s // 3}"
        )
    return ""


class Submitting:
    """The jobs of a Plan. Records and queues are read when they are needed, not before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._on_cluster = self._baselines_join = False
        self._queue: schedulers.Queue | None = None  # None if its offer is not known

    @property
    def resources(self) -> dict[str, Callable[..., Any]]:
        """The resources of the rule that trains a run: {name: function}."""
        return self._resources(
            lambda wildcards, attempt: self._job(self._plan.runs[wildcards.run_id], attempt)
        )

    def resources_like(self, run_of: Callable[[Any], Run]) -> dict[str, Callable[..., Any]]:
        """The resources of a rule whose jobs are started as a run is, with the full time limit.

        `run_of`: wildcards of the rule -> that run.
        """
        return self._resources(
            lambda wildcards, attempt: self._request(run_of(wildcards), attempt, None, None)
        )

    @property
    def resources_of_baselines(self) -> dict[str, Callable[..., Any]]:
        """The resources of the rule that measures a baseline."""

        def job(wildcards, attempt):
            name = wildcards.baseline
            begins_s = self._bundles.get(name, (None, None))[1] if self._on_cluster else None
            return self._request(baselines.find(self._plan, name).run, attempt, begins_s, None)

        return self._resources(job)

    def memory_mb(self, search_id: str) -> int:
        """MiB that the tries of a search may use on a node: what its job requests for them."""
        run = self._plan.searches[search_id][0].run
        return max(1, self._request(run, 1, None, None).memory_mb - WORKFLOW_MB)

    def _resources(self, job_of):
        def resource(name):
            return lambda wildcards, attempt: resources(job_of(wildcards, attempt))[name]

        return {name: resource(name) for name in self._names}

    def forget(self) -> None:
        """Clear cached values, since the plan has other runs now."""
        for name in ("_estimates", "_bundles"):
            vars(self).pop(name, None)

    @property
    def cost(self) -> str:
        """One line on the cost of training."""
        plan = self._plan
        return costs.describe_forecast(plan.to_train, self._estimates, plan.study.time_limit_s)

    def bundle(self, name: str) -> str | None:
        """The name of the bundle with whose runs a run or baseline shares a job, or None."""
        return self._bundles.get(name, (None, None))[0]

    def results(self, bundle: str) -> list[str]:
        """The records of the runs of a bundle, and the baselines that are measured in its job."""
        plan = self._plan
        return [
            f"results/runs/{name}/run.json"
            if name in plan.runs
            else baselines.file(plan, name, submits=True)
            for name, (other, _) in self._bundles.items()
            if other == bundle
        ]

    @property
    def bundles(self) -> list[str]:
        """The names of all bundles."""
        return list(dict.fromkeys(name for name, _ in self._bundles.values()))

    def check_cluster(
        self,
        name: str | None,
        profile_value: Callable[[str, str], Any],
        settings: Mapping[str, Any],
        baselines_join: bool = False,
    ) -> None:
        """Check that a scheduler would accept all jobs of this start.

        Args:
            name: of a file in schedulers/; None if Snakemake submits to something else.
            profile_value: (rule, resource) -> the value in the profile, or None.
            settings: of the executor.
            baselines_join: whether baselines of a node share the job of its runs.

        Raises:
            Error: a job would be refused or could not start, or the scheduler does not answer.
        """
        plan = self._plan
        self._on_cluster, self._baselines_join = True, baselines_join
        if reason := describe_auto(plan.study.site):
            raise Error(reason)
        if not name:
            return
        if reason := describe_python():
            raise Error(reason)
        module = plugins.load("schedulers", name)
        queues = module.queues()
        forgets_after_s = module.forgets_after_s() if hasattr(module, "forgets_after_s") else None
        bundle_min = plan.study.site["job"]["bundle_min"]
        if reason := describe_settings(settings, forgets_after_s, bundle_min):
            raise Error(reason)
        # With the full time limit; the memory of later attempts is limited to that of a node.
        request = functools.partial(self._request, attempt=1, begins_s=None, estimate_s=None)
        self._queue, *_ = [
            check(labelled, queues, queue, getattr(module, "unsupported_jobs", None))
            for labelled, queue in by_queue(plan, request, profile_value, module.QUEUE)
        ]
        standing.start_reporting(name, Path.cwd())

    def _job(self, run, attempt=1):
        begins_s = self._bundles.get(run.id, (None, None))[1] if self._on_cluster else None
        if begins_s and attempt > 1 and run_record.folder(run.id).joinpath("run.json").exists():
            # It is done; a run that shares its job has failed.
            return dataclasses.replace(self._request(run, attempt, begins_s, None), time_min=0)
        estimate_s = self._estimates.of(run)[0] if self._on_cluster else None
        return self._request(run, attempt, begins_s, estimate_s)

    def _request(self, run, attempt, begins_s, estimate_s):
        study, kind = self._plan.study, self._plan.device_kind
        job = job_of_run(
            run,
            study.site,
            kind,
            study.time_limit_s,
            estimate_s,
            attempt,
            begins_s,
            wait_s=study.wait_for_quiet_s,
        )
        bounded = self._queue and not study.site["memory_mb_per_node"]
        return limit_memory(job, self._queue) if bounded else job

    @functools.cached_property
    def _names(self):
        return list(resources(self._request(self._plan.with_tries[0], 2, None, None)))

    @functools.cached_property
    def _estimates(self):
        return costs.estimates(self._plan.study.runs)

    @functools.cached_property
    def _bundles(self):
        limit_s = self._queue and self._queue.time_limit_s
        return bundle_runs(
            self._plan.to_train,
            lambda run, begins_s: self._request(run, 1, begins_s, self._estimates.of(run)[0]),
            lambda run: self._estimates.of(run)[0],
            self._plan.study.site["job"]["bundle_min"],
            limit_s and int(limit_s // 60),
            self._joining_baselines() if self._baselines_join else None,
        )

    def _joining_baselines(self):
        """{name: begins_s -> Job} of the baselines that are to be measured."""

        def job(run):
            return lambda begins_s: self._request(run, 1, begins_s, None)

        return {
            name: job(baseline.run)
            for name, baseline in baselines.of_plan(self._plan).items()
            if not Path(baselines.file(self._plan, name, submits=True)).exists()
        }
