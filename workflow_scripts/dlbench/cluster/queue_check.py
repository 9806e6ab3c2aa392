"""Whether a queue offers what the jobs of a study request: part of check_site.py."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.cluster.profiles import Profile
from dlbench.cluster.remarks import Remark, fix, note, ok
from dlbench.common import phrases
from dlbench.data import stores
from dlbench.plan import planning, site_devices, skipping
from dlbench.plan.plan import ATTEMPTS
from dlbench.records import judgement, staleness
from dlbench.records.judgement import State
from dlbench.schedulers import Job, Queue
from dlbench.study.config import Study
from dlbench.study.runs import Run

SITE_FILE = "site.yaml"


def remarks(
    module: ModuleType, queues: Mapping[str, Queue], profile: Profile, study: Study
) -> Iterator[Remark]:
    """What the queues of runs and of other jobs offer, and which jobs they would reject.

    Args:
        module: the scheduler's file.
    """
    runs: list[tuple[str, Job]] = []
    searches: list[tuple[str, Job]] = []
    labels_by_reason: dict[str, list[str]] = {}
    if unknown := jobs.describe_auto(study.site):
        yield fix(unknown)
    else:
        runs, labels_by_reason = jobs_of_study(study, to_train(study))
        searches = jobs_of_searches(study)
    queue_name = profile.value("train", module.QUEUE)
    checks = [([*runs, *searches], queue_name, getattr(module, "unsupported_jobs", None))]
    tries = (search.run for search in study.searches.values())
    if any(staleness.has_data(run) for run in (*study.runs, *tries)):
        conversion = [(jobs.CONVERSION, jobs.job_of_conversion(profile.value))]
        checks.append((conversion, profile.value("convert_dataset", module.QUEUE), None))
    problems: dict[str, None] = {}
    for jobs_of_queue, name, unsupported_jobs in checks:
        try:
            jobs.check(jobs_of_queue, queues, name, unsupported_jobs)
        except Error as error:
            problems |= dict.fromkeys(str(error).splitlines())
    yield from map(fix, problems)
    yield from _limits(module, profile, [*runs, *searches])
    queue = _queue_named(queues, queue_name)
    if queue is None:
        if queue_name is None:
            yield note("no queue is named in the profile, and the scheduler has no default")
        return
    most_min = f"{queue.time_limit_s // 60:g} min at most" if queue.time_limit_s else ""
    limits = "; ".join(filter(None, [queue.kinds, most_min])) or "no known limits"
    yield ok(f"{'' if queue_name else 'the default '}queue {queue.name} has {limits}")
    yield from _not_up(queue, runs)
    yield from _against_site(queue, study.site)
    for reason, labels in labels_by_reason.items():
        yield note(f"{phrases.counted(len(labels), 'run')} left out: {reason}")
    for label, _ in searches:
        yield note(f"to search first, since its runs are not known yet: {label}")
    if runs:
        longest = max(job.time_min for _, job in runs)
        yield ok(f"{phrases.counted(len(runs), 'run')} to train, of at most {longest} min")
    elif not unknown and not labels_by_reason and not searches:
        yield ok(f"nothing to train: {phrases.counted(len(study.runs), 'run')} done")


def to_train(study: Study) -> list[Run]:
    """The runs without a valid record."""
    recipes = stores.recipes(stores.adopted(study))
    done = (State.CURRENT, State.UNREAD)
    return [
        run
        for run in study.runs
        if judgement.state(run, True, recipes, study.images, study.time_limit_s)[0] not in done
    ]


def _limits(module, profile, labelled_jobs):
    """Remarks on jobs that request more than the accounting allows, and so may wait for ever."""
    if not hasattr(module, "limits"):
        return
    account, qos = (profile.value("train", name) for name in ("slurm_account", "qos"))
    try:
        limits = module.limits(account, qos, profile.value("train", module.QUEUE))
    except Error:
        return  # a remark on accounts says so already
    for limit in limits:
        for line in jobs.problems(labelled_jobs, limit):
            yield fix(f"{line}: refused, or waiting without an end")
        at_once = profile.content.get("jobs", 1)
        if limit.jobs_at_once is not None and limit.jobs_at_once < at_once:
            yield note(
                f"{limit.name} has {phrases.counted(limit.jobs_at_once, 'job')} in the queue at "
                f"most, and the profile has jobs: {at_once}: those above wait to be submitted"
            )


def jobs_of_study(
    study: Study, runs: Iterable[Run]
) -> tuple[list[tuple[str, Job]], dict[str, list[str]]]:
    """The jobs of runs.

    Returns:
        [(label, Job)] of the runs that can be trained, and {reason: labels} of those that cannot.
    """
    devices = site_devices.devices(study.site)
    labelled_jobs: list[tuple[str, Job]] = []
    labels_by_reason: dict[str, list[str]] = {}
    for run in runs:
        reason = skipping.skip_reason(run, devices, study)
        if reason:
            labels_by_reason.setdefault(reason, []).append(study.labels[run.id])
        else:
            labelled_jobs.append((study.labels[run.id], _job(run, study, devices)))
    return labelled_jobs, labels_by_reason


def jobs_of_searches(study: Study) -> list[tuple[str, Job]]:
    """[(label, Job)] of the searches for a largest batch that the next start would do."""
    devices = site_devices.devices(study.site)
    to_do = planning.searches_to_do(study, devices).values()
    return [
        (search.label(), _job(search.run, study, devices))
        for search, why_not in to_do
        if not why_not
    ]


def _job(run, study, devices):
    # The last attempt requests the most.
    limits = {"attempt": ATTEMPTS, "wait_s": study.wait_for_quiet_s}
    return jobs.job_of_run(run, study.site, devices.kind, study.time_limit_s, **limits)


def _queue_named(queues, queue_name):
    return queues.get(queue_name or next((q.name for q in queues.values() if q.default), None))


def _not_up(queue, runs):
    """Remarks on nodes that start no jobs now."""
    down = queue.count() - queue.count(up=True)
    if not down:
        return
    text = (
        f"{down} of the {queue.count()} nodes of {queue.name} start no jobs now (drained or down)"
    )
    waiting = [
        label
        for label, job in runs
        if queue.count(up=True, **job.per_node) < job.nodes <= queue.count(**job.per_node)
    ]
    if waiting:
        yield fix(
            f"{text}: {phrases.counted(len(waiting), 'run')} would wait for them, as {waiting[0]}; "
            "lower site.nodes, or begin when they are back"
        )
    else:
        yield note(text)


def _against_site(queue, facts):
    """Remarks where site.yaml promises nodes that the queue does not have."""
    nodes, is_gpu = facts["nodes"], facts["device"] == "gpu"
    keys = ("cores_per_node", "memory_mb_per_node", "devices_per_node")
    cores, memory_mb, gpus = (facts[key] if facts[key] != "auto" else 0 for key in keys)
    promised = Job(nodes, nodes, cores, memory_mb or 0, gpus * is_gpu, 0, False, "", "")
    wanted = [(f"{SITE_FILE} promises", promised)]
    yield from map(fix, jobs.problems(wanted, replace(queue, nodes_per_job=None)))
