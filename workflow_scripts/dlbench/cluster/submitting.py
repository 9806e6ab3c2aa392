"""What the rules tell Snakemake of the jobs in which a plan's runs are trained on a cluster."""

import dataclasses
import functools
import itertools
import re
import sys
from pathlib import Path

from dlbench import Error, schedulers
from dlbench.cluster import jobs
from dlbench.common import plugins
from dlbench.records import costs, run_record
from dlbench.starting import refusals


def scheduler(executor, settings):
    """The file in schedulers/ that is behind one of Snakemake's executors, by name; or None.

    Args:
        settings: the executor's; those of cluster-generic name it in their submit command.
    """
    words = [executor, *re.findall(r"\w+", getattr(settings, "submit_cmd", None) or "")]
    return next((word for word in words if word in plugins.names("schedulers")), None)


def mend(name, plugin, every_s, settings):
    """Change what lacks in an executor plugin, once it is loaded.

    Args:
        plugin: its module.
        every_s: seconds between two looks at the queue, at most.
        settings: of the executor.
    """
    refusals.hear(plugin.Executor, name)
    change = getattr(plugins.load("schedulers", name), "mend", None) if name else None
    if change:
        change(plugin, every_s, settings)


def _cancelled_leftovers(scheduler):
    """Cancel what a killed Snakemake left in the queue: it would write what we are to write.

    Returns whether there was any. What it has left is not what the plan was made from.
    """
    locked = any(Path(".snakemake/locks").glob("*"))  # another one may be at work; ours will say so
    if hasattr(scheduler, "clear") and not locked:
        cancelled = scheduler.clear(Path.cwd())
        if cancelled:
            ids = ", ".join(sorted(cancelled))
            print(
                f"cancelled jobs that an earlier start left behind: {ids}; starting anew",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            return True
    return False


class Submitting:
    """The jobs of a plan.Plan. Nothing is looked at before it is asked for."""

    def __init__(self, plan):
        self._plan = plan
        self._on_cluster = False
        self._queue = None  # where it is known what it offers
        # Within a job, where Snakemake is started again, it is that whose job it is.
        self._scheduler = (schedulers.job() or (None,))[0]

    @property
    def resources(self):
        """What a run asks for, as resources of its rule: {name: function}."""

        def resource(name):
            return lambda wildcards, attempt: jobs.resources(
                self._job(self._plan.runs[wildcards.run_id], attempt), self._scheduler
            ).get(name)

        return {name: resource(name) for name in self._names}

    @property
    def cost(self):
        """What training costs, in one line."""
        plan = self._plan
        return costs.forecast(plan.to_train, self._estimates, plan.study.time_limit_s)

    def bundle(self, run_id):
        """The name of the runs that share a job with this one, or None."""
        return self._bundles.get(run_id, (None, None))[0]

    def to_cluster(self, name, asked):
        """See that a scheduler would take all that is to be submitted.

        Args:
            name: of a file in schedulers/; None where Snakemake submits to something else.
            asked: (rule, resource) -> what the profile says of it, as of the queue; None for
                nothing.

        Returns:
            Whether jobs of an earlier start were cancelled, so that Snakemake must start anew.

        Raises:
            Error: it would not take it.
        """
        plan = self._plan
        self._on_cluster, self._scheduler = True, name
        self._refuse_auto()
        if not name:
            return False
        module = plugins.load("schedulers", name)
        if _cancelled_leftovers(module):
            return True
        queues, unfit = module.queues(), getattr(module, "unfit", None)
        # All of the time; what a node has of memory bounds what is asked for again.
        named = plan.labels
        training = [(named[r.id], self._ask(r, 1, None, None)) for r in plan.to_train]
        queue = jobs.check(training, queues, asked("train", module.QUEUE), unfit)
        if plan.datasets:
            other = asked("convert_dataset", module.QUEUE)
            jobs.check([(jobs.CONVERSION, jobs.plain(asked))], queues, other)
        self._queue = queue
        return False

    def _refuse_auto(self):
        keys = ["device", "cores_per_node"]
        keys += ["devices_per_node"] if self._plan.device_kind == "gpu" else []
        found = [f"site.{key}" for key in keys if self._plan.study.site[key] == "auto"]
        if found:
            raise Error(
                f"{', '.join(found)}: auto counts what this machine has, and runs are trained on "
                "others; say in site.yaml what a node has (docs/clusters.md)"
            )

    def _job(self, run, attempt=1):
        place = self._bundles.get(run.id, (None, None))[1] if self._on_cluster else None
        if place and attempt > 1 and run_record.folder(run.id).joinpath("run.json").exists():
            # It shares a job with one that failed, and has nothing more to do.
            return dataclasses.replace(self._ask(run, attempt, place, None), time_min=0)
        estimate_s = self._estimates.of(run)[0] if self._on_cluster else None
        return self._ask(run, attempt, place, estimate_s)

    def _ask(self, run, attempt, place, estimate_s):
        study, kind = self._plan.study, self._plan.device_kind
        job = jobs.ask(
            run, study.site, kind, study.time_limit_s, estimate_s, attempt, place,
            wait_s=study.wait_for_quiet_s,
        )  # fmt: skip
        bounded = self._queue and not study.site["memory_mb_per_node"]
        return jobs.within(job, self._queue) if bounded else job

    @functools.cached_property
    def _names(self):
        job = self._job(next(iter(self._plan.runs.values())), attempt=2)
        of_each = (jobs.resources(job, name) for name in (None, *plugins.names("schedulers")))
        return list(dict.fromkeys(itertools.chain(*of_each)))

    @functools.cached_property
    def _estimates(self):
        return costs.estimates(self._plan.study.runs)

    @functools.cached_property
    def _bundles(self):
        limit_s = self._queue and self._queue.time_limit_s
        return jobs.bundles(
            self._plan.to_train,
            lambda run, place: self._ask(run, 1, place, self._estimates.of(run)[0]),
            lambda run: self._estimates.of(run)[0],
            self._plan.study.site["job"]["bundle_min"],
            limit_s and int(limit_s // 60),
        )
