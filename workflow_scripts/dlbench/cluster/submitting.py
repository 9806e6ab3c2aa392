"""The jobs of a plan on a cluster: their resources, groups and checks, for the rules."""

import dataclasses
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.cluster import jobs
from dlbench.common import plugins
from dlbench.plan import baselines, waiting_jobs
from dlbench.plan.plan import Plan
from dlbench.records import costs, run_record
from dlbench.study.runs import Run


def scheduler(executor: str | None, submit_command: str | None) -> str | None:
    """The scheduler to which jobs are submitted, as the name of a file in schedulers/; or None.

    Args:
        executor: of Snakemake; None if jobs run on this machine.
        submit_command: of the executor cluster-generic; the name is part of it.
    """
    names = re.findall(r"\w+", submit_command or "") if executor == "cluster-generic" else []
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

        Args:
            run_of: wildcards of the rule -> that run.
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
        return max(1, self._request(run, 1, None, None).memory_mb - jobs.WORKFLOW_MB)

    def _resources(self, job_of):
        def resource(name):
            return lambda wildcards, attempt: jobs.resources(job_of(wildcards, attempt))[name]

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
        """The name of the bundle with whose runs a run or baseline shares a job, or None.

        Args:
            name: id of the run, or name of the baseline.
        """
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
        baselines_join: bool = False,
    ) -> None:
        """Check that a scheduler would accept all jobs of this start.

        Args:
            name: of a file in schedulers/; None if Snakemake submits to something else.
            profile_value: (rule, resource) -> the value in the profile, or None.
            baselines_join: whether baselines of a node share the job of its runs.

        Raises:
            Error: a job would be refused or could not start, or the scheduler does not answer.
        """
        plan = self._plan
        self._on_cluster, self._baselines_join = True, baselines_join
        if reason := jobs.describe_auto(plan.study.site):
            raise Error(reason)
        if not name:
            return
        if reason := describe_python():
            raise Error(reason)
        module = plugins.load("schedulers", name)
        queues, unsupported_jobs = module.queues(), getattr(module, "unsupported_jobs", None)
        # With the full time limit; the memory of later attempts is limited to that of a node.
        labels = plan.labels
        training = [(labels[run.id], self._request(run, 1, None, None)) for run in plan.to_train]
        training += [
            (search.label(), self._request(search.run, 1, None, None))
            for search, why_not in plan.searches.values()
            if not why_not
        ]
        queue = jobs.check(training, queues, profile_value("train", module.QUEUE), unsupported_jobs)
        if plan.datasets:
            conversion = [(jobs.CONVERSION, jobs.job_of_conversion(profile_value))]
            jobs.check(conversion, queues, profile_value("convert_dataset", module.QUEUE))
        self._queue = queue
        waiting_jobs.start_reporting(name, Path.cwd())

    def _job(self, run, attempt=1):
        begins_s = self._bundles.get(run.id, (None, None))[1] if self._on_cluster else None
        if begins_s and attempt > 1 and run_record.folder(run.id).joinpath("run.json").exists():
            # It is done; a run that shares its job has failed.
            return dataclasses.replace(self._request(run, attempt, begins_s, None), time_min=0)
        estimate_s = self._estimates.of(run)[0] if self._on_cluster else None
        return self._request(run, attempt, begins_s, estimate_s)

    def _request(self, run, attempt, begins_s, estimate_s):
        study, kind = self._plan.study, self._plan.device_kind
        job = jobs.job_of_run(
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
        return jobs.limit_memory(job, self._queue) if bounded else job

    @functools.cached_property
    def _names(self):
        return list(jobs.resources(self._request(self._plan.with_tries[0], 2, None, None)))

    @functools.cached_property
    def _estimates(self):
        return costs.estimates(self._plan.study.runs)

    @functools.cached_property
    def _bundles(self):
        limit_s = self._queue and self._queue.time_limit_s
        return jobs.bundle_runs(
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
