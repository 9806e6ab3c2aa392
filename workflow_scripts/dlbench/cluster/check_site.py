"""Check whether a site is ready for a campaign, and report what must be fixed.

First come the checks on this machine: profile, plugin, scheduler, queue, site.yaml and the jobs of
runs. Then one short job reports from compute nodes by workflow_scripts/check_node.py: the
scheduler's program submits it, with the settings of the profile, and waits for its end. The nodes
and this machine write files for one another into a folder of the results. This shows whether the
folder is shared, how long files take to appear, and how far the clocks differ.
"""

import contextlib
import functools
import json
import math
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.cluster import jobs, profiles
from dlbench.cluster.profiles import SITE_FILE
from dlbench.common import files, own_code, phrases, plugins, tools
from dlbench.common.files import write_json
from dlbench.images import trainer_image
from dlbench.images.runtimes import Container
from dlbench.plan import planning, skipping
from dlbench.plan.plan import ATTEMPTS
from dlbench.schedulers import Job, output_of
from dlbench.starting import start_command
from dlbench.starting.launchers import mpirun
from dlbench.study import config, trainer_environments
from dlbench.trainer import engine

FOLDER = Path("results/site_check")
PROGRAM = "workflow_scripts/check_node.py"
JOB_MB = 1000
MINUTES = 5  # limit of the job, which takes seconds
LEAST_KNOWN_S = 60  # jobs that have ended are looked at every few seconds, and lost after a minute
LATE_FILES_S = 5.0  # after the end of a job that failed, until its last files appear
SKEW_S = 1.0  # of clocks; beyond this, times in logs of several nodes are misleading
FREE_MB = 1024
LAUNCH_FAILED = re.compile(r"launch failed|\bMPI\b", re.IGNORECASE)  # in the output of srun
# Files of the exchange with nodes; others have the output of the job.
OURS = re.compile(r"(request|hello|answer|report|listens|connected)\..*|job\.sh|submitted\.out")
SCRIPT = """#!/bin/sh
cd {here} || exit 1
for python in {python} python3; do
    "$python" -c '' 2>/dev/null && exec {before} "$python" {program} {folder}
done
echo "neither {python} nor python3 can be started on $(hostname)" >&2
exit 1
"""


@dataclass(frozen=True)
class Remark:
    """A remark of a check; `mark` is ok, fix (to be done) or note (not checked, or to know)."""

    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.mark:<6}" + self.text.replace("\n", "\n" + " " * 6)


_ok, _fix, _note = (functools.partial(Remark, mark) for mark in ("ok", "fix", "note"))


def _judged(fine, text, wrong):
    """The remark `text` on what is as it should be, else what is wrong with it."""
    return _ok(text) if fine else _fix(wrong)


def print_remarks(
    name: str, configfiles: list[str], with_job: bool, timeout_s: float, as_json: bool = False
) -> bool:
    """Print all remarks, each as soon as it is known; as JSON all at the end.

    `name`: of the profile, or its folder. `timeout_s`: how long the job on a compute node may wait
    in the queue. Returns True if there is nothing to fix.
    """
    made = []
    for remark in remarks(name, configfiles, with_job, timeout_s):
        made.append(remark)
        if not as_json:
            print(remark, flush=True)
    to_fix = sum(remark.mark == "fix" for remark in made)
    if as_json:
        print(json.dumps({"to_fix": to_fix, "remarks": list(map(asdict, made))}))
    else:
        print(f"{to_fix} to fix" if to_fix else "nothing to fix")
    return not to_fix


def remarks(
    name: str, configfiles: list[str], with_job: bool, timeout_s: float
) -> Iterator[Remark]:
    """Yield all remarks, in the order in which the workflow needs what they are about."""
    try:
        profile = profiles.read(name)
        plan = planning.make_plan(config.settings_of(configfiles))
    except Error as error:
        yield _fix(str(error))
        return
    study = plan.study
    yield from _profile(profile)
    yield from _site_file(study.site, profile.executor)
    scheduler = jobs.scheduler(profile.executor, profile.settings)
    if profile.executor == "local":
        yield _note("runs are trained on this machine; there is no scheduler to look at")
    elif scheduler is None:
        yield _note(
            f"the executor {profile.executor} is not one of dlbench's profiles: what it submits to "
            "is not looked at, and whether runs get the GPUs and nodes that they ask for is up to "
            "it"
        )
    if scheduler is None:
        return
    checked = list(_scheduler(scheduler, profile, plan))
    yield from checked
    if not with_job:
        yield _note("compute nodes: not looked at (--no-job)")
    elif any(remark.mark == "fix" for remark in checked) or jobs.describe_auto(study.site):
        yield _note("compute nodes: not looked at before the above is fixed")
    else:
        yield from _nodes(scheduler, profile, plan, timeout_s)


def _profile(profile):
    """Remarks on the profile, and on the plugin of its executor."""
    folder, executor = profile.file.parent, profile.executor
    if profile.hidden:
        target = f"~/.config/snakemake/{folder.name}"
        yield _note(
            f"Snakemake knows this profile as --profile {folder} only; for --profile "
            f'{folder.name}: mkdir -p ~/.config/snakemake && ln -sfn "$PWD/{folder}" {target}'
        )
    else:
        yield _ok(f"profile {profile.file}, executor {executor}")
    yield _judged(
        profiles.installed(executor),
        f"Snakemake has the executor {executor}",
        f"{profiles.PLUGIN}{executor} is not installed for {sys.executable}; install it with: "
        f"{profiles.installation(executor)}",
    )


def _site_file(facts, executor):
    if not Path(SITE_FILE).exists() and executor != "local":
        yield _fix(f"no {SITE_FILE} in {Path.cwd()}: say there what a node has (docs/clusters.md)")
    if facts["name"] == profiles.DEFAULT_NAME:
        yield _note(
            f"site.name is {profiles.DEFAULT_NAME!r}, which readers of the results will not know"
        )
    missing_keys = [f"site.{key}" for key in ("interconnect", "storage") if not facts[key]]
    if missing_keys:
        yield _note(f"{' and '.join(missing_keys)}: null; readers of the results need it")


def _scheduler(name, profile, plan):
    """Remarks on the scheduler: its programs, whether it answers, its queues, the jobs of runs."""
    module = plugins.load("schedulers", name)
    if reason := jobs.describe_python():
        yield _fix(reason)
    if missing := tools.missing_program([(program,) for program in module.PROGRAMS]):
        yield _fix(f"{name}: {missing}: start where jobs are submitted, or load its module")
        return
    try:
        queues = module.queues()
    except Error as error:
        yield _fix(f"{name} does not answer: {error}")
        return
    yield _ok(f"{name} answers, and has {', '.join(sorted(queues))}")
    yield from _queues(module, queues, profile, plan)
    yield from _account(module, profile)
    forgets_after_s = module.forgets_after_s() if hasattr(module, "forgets_after_s") else None
    bundle_min = plan.study.site["job"]["bundle_min"]
    if reason := jobs.describe_settings(profile.settings, forgets_after_s, bundle_min):
        yield _fix(reason)
    elif forgets_after_s is not None and forgets_after_s < LEAST_KNOWN_S:
        yield _note(
            f"{name} keeps no accounts and forgets jobs {forgets_after_s} s after their end: why "
            "it ended a job itself, as at its time limit, may stay unknown; Slurm's default for "
            "MinJobAge is 300"
        )


def _account(module, profile):
    """A remark on the account, if the site lets users list their accounts."""
    if not hasattr(module, "accounts"):
        return
    try:
        known = module.accounts()
    except Error as error:
        yield _note(f"accounts not looked at: {error}")
        return
    account = profile.value("train", "slurm_account")
    if account and known and account not in known:
        yield _note(
            f"account {account!r} is not among yours{phrases.did_you_mean(account, known)}: "
            f"{', '.join(known)}"
        )
    elif known:
        yield _ok(f"account {account or f'not given; yours are: {chr(44).join(known)}'}")


# What queues offer, and what the jobs of the study request.


def _queues(module, queues, profile, plan):
    """Remarks on the queues of runs and of other jobs, and on jobs that they would reject."""
    site, unknown = plan.study.site, jobs.describe_auto(plan.study.site)
    if unknown:
        yield _fix(unknown)
    searches = [search for search, why_not in plan.searches.values() if not why_not]
    left_out = [] if unknown else [why for key, why in plan.skipped.items() if key in plan.pending]
    request = functools.partial(_job, plan=plan)
    checks = list(jobs.by_queue(plan, request, profile.value, module.QUEUE))
    runs, queue_name = checks[0]
    problems = {}
    for jobs_of_queue, name in checks:
        try:
            jobs.check(jobs_of_queue, queues, name, getattr(module, "unsupported_jobs", None))
        except Error as error:
            problems |= dict.fromkeys(str(error).splitlines())
    yield from map(_fix, problems)
    yield from _limits(module, profile, runs)
    default = next((q.name for q in queues.values() if q.default), None)
    queue = queues.get(queue_name or default)
    if queue is None:
        if queue_name is None:
            yield _note("no queue is named in the profile, and the scheduler has no default")
        return
    most_min = f"{queue.time_limit_s // 60:g} min at most" if queue.time_limit_s else ""
    limits = "; ".join(filter(None, [queue.kinds, most_min])) or "no known limits"
    yield _ok(f"{'' if queue_name else 'the default '}queue {queue.name} has {limits}")
    yield from _not_up(queue, runs)
    yield from _against_site(queue, site)
    for reason, number in Counter(left_out).items():
        yield _note(f"{phrases.counted(number, 'run')} left out: {reason}")
    for search in searches:
        yield _note(f"to search first, since its runs are not known yet: {search.label()}")
    if plan.to_train and not unknown:
        longest = max(job.time_min for _, job in runs)
        to_train = phrases.counted(len(plan.to_train), "run")
        yield _ok(f"{to_train} to train, of at most {longest} min")
    elif not unknown and not left_out and not searches:
        yield _ok(f"nothing to train: {phrases.counted(len(plan.runs), 'run')} done")


def _job(run, plan):
    # The last attempt requests the most.
    limits = {"attempt": ATTEMPTS, "wait_s": plan.study.wait_for_quiet_s}
    study = plan.study
    return jobs.job_of_run(run, study.site, plan.device_kind, study.time_limit_s, **limits)


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
            yield _fix(f"{line}: refused, or waiting without an end")
        at_once = profile.content.get("jobs", 1)
        if limit.jobs_at_once is not None and limit.jobs_at_once < at_once:
            yield _note(
                f"{limit.name} has {phrases.counted(limit.jobs_at_once, 'job')} in the queue at "
                f"most, and the profile has jobs: {at_once}: those above wait to be submitted"
            )


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
        yield _fix(
            f"{text}: {phrases.counted(len(waiting), 'run')} would wait for them, as {waiting[0]}; "
            "lower site.nodes, or begin when they are back"
        )
    else:
        yield _note(text)


def _against_site(queue, facts):
    """Remarks where site.yaml promises nodes that the queue does not have."""
    nodes, is_gpu = facts["nodes"], facts["device"] == "gpu"
    keys = ("cores_per_node", "memory_mb_per_node", "devices_per_node")
    cores, memory_mb, gpus = (facts[key] if facts[key] != "auto" else 0 for key in keys)
    promised = Job(nodes, nodes, cores, memory_mb or 0, gpus * is_gpu, 0, False, "", "")
    wanted = [(f"{SITE_FILE} promises", promised)]
    yield from map(_fix, jobs.problems(wanted, replace(queue, nodes_per_job=None)))


# The job on compute nodes.


def _nodes(scheduler, profile, plan, timeout_s):
    module, study = plugins.load("schedulers", scheduler), plan.study
    job, request = _node_job(module, profile, plan), _request(module, profile, study)
    latency_s = float(profile.content.get("latency-wait", 5))
    try:
        reports = _reports_of_job(scheduler, job, request, timeout_s, latency_s)
    except Error as error:
        yield _fix(str(error))
        return
    hosts = [report["host"] for report in reports]
    ran_on = f"ran on {', '.join(hosts)}"
    all_ran = len(set(hosts)) >= job.nodes
    yield _judged(all_ran, f"a job {ran_on}", f"a job on {job.nodes} nodes {ran_on} only")
    for path in _forms(study):
        again = tools.snakemake_command("images")
        if reason := trainer_image.failure(path):
            yield _fix(f"{reason} ({again} tries again)")
        elif not Path(path).exists():
            yield _note(f"image {path}: not made yet ({again})")
    expected = {
        "cores": job.cores_per_node,
        "gpus": job.gpus_per_node or None,
        "latency_s": latency_s,
        "modules": request["modules"],
        "environments": sorted({run.environment for run in study.runs}),
        "packages": request["pythons"],
        "own_name": not job.gpus_per_node and any(run.framework == "jax" for run in study.runs),
    }
    yield from remarks_on_nodes(reports, expected)


def _node_job(module, profile, plan):
    """The job of the check: all devices of a node, and as many cores as runs request."""
    facts, runs = plan.study.site, plan.study.runs
    devices = skipping.devices(facts)
    wanted = [run for run in runs if run.id not in plan.skipped]
    wanted += [search.run for search, why_not in plan.searches.values() if not why_not]
    cores = [_job(run, plan).cores_per_node for run in wanted]
    several = facts["nodes"] > 1 and any(run.nodes > 1 for run in runs)
    can_start_on_each = hasattr(module, "on_each_node")
    nodes = 2 if several and can_start_on_each else 1
    return Job(
        nodes=nodes,
        tasks=nodes,
        cores_per_task=max(cores, default=1),
        memory_mb=JOB_MB,
        gpus_per_node=devices.per_node if devices.kind == "gpu" else 0,
        time_min=MINUTES,
        exclusive=False,
        gpu_request=facts["job"]["gpu_request"],
        extra=facts["job"]["extra"],
        name="check_site",
        resources=profile.defaults,
        speaks_mpi=can_start_on_each and any(run.launcher == "srun" for run in runs),
    )


def _request(module, profile, study):
    contained = [run for run in study.runs if start_command.contained(run)]
    # {Python of an environment: the package of its framework}.
    environments = {
        trainer_environments.trainer_python(run.environment): engine.packages(run.framework)[0]
        for run in study.runs
        if not start_command.contained(run) and trainer_environments.is_installed(run.environment)
    }
    runtimes = sorted({run.runtime for run in contained})
    programs = [p for name in runtimes for p in plugins.load("runtimes", name).PROGRAMS]
    by_mpirun = any(run.launcher == "mpirun" for run in study.runs)
    return {
        "python": sys.executable,
        "pythons": {sys.executable: "snakemake"}
        | {str(path): package for path, package in environments.items()},
        "modules": study.site["modules"],
        "programs": [[names] if isinstance(names, str) else list(names) for names in programs],
        "mpi": _mpiruns(environments) if by_mpirun else None,
        "srun_mpi": any(run.launcher == "srun" and run.strategy == "horovod" for run in study.runs),
        "tmpdir": profile.value("train", "tmpdir"),
        "node_address": study.site.get("node_address"),
        "addresses": module.addresses([]) if hasattr(module, "addresses") else {},
        "images": dict(_image_commands(study)),
    }


def _mpiruns(pythons):
    """The mpiruns that the launcher would use: those of the environments, then that on PATH."""
    folders = [path.absolute().parents[1] for path in pythons]
    ours = [(str(folder / "bin/mpirun"), mpirun.library_variables(folder)) for folder in folders]
    return [*ours, ("mpirun", {})]


def _forms(study):
    """{file of an image's form: a run that takes it}."""
    return {trainer_image.form_path(run): run for run in study.runs if start_command.contained(run)}


def _image_commands(study):
    """Yield (name, command that starts the image's Python) for each form that is made."""
    gpus = skipping.devices(study.site).kind == "gpu"
    for path, run in _forms(study).items():
        form = files.read_json(path)
        if form and not trainer_image.failure(path):
            container = Container(
                image=form["prepared"],
                folder=str(Path.cwd()),
                binds=tuple(trainer_image.settings(run.environment, study.images)["binds"]),
                environment=form["environment"],
                gpus=gpus,
                options=form["options"],
                name=f"check-{run.environment}",
            )
            start = plugins.load("runtimes", run.runtime).command
            yield f"{run.environment}, {run.runtime}", start(container, [form["python"], "-V"])


def _reports_of_job(scheduler, job, request, timeout_s, latency_s):
    """Submit the job and return the reports of check_node.py, one for each node.

    `timeout_s`: how long the job may wait in the queue. `latency_s`: for which Snakemake waits for
    the files of a job that has succeeded. Raises Error: the job was refused, waited too long, or
    ended without a report.
    """
    module = plugins.load("schedulers", scheduler)
    folder = FOLDER.absolute() / secrets.token_hex(8)
    write_json(folder / "request.json", {**request, "nodes": job.nodes, "token": folder.name})
    before = module.on_each_node(job) if job.nodes > 1 or job.speaks_mpi else []
    script = folder / "job.sh"
    words = {
        "here": Path.cwd(), "python": sys.executable, "folder": folder,
        "program": own_code.project_path(PROGRAM),
    }  # fmt: skip
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    script.write_text(SCRIPT.format(before=shlex.join(before), **quoted))
    command = module.wait_command(job, script, folder)
    with open(folder / "submitted.out", "wb") as output:
        try:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Error(f"{command[0]} cannot be started: {error}") from None
    try:
        reports = _wait_for_reports(process, folder, job.nodes, timeout_s, latency_s)
        if reports is None:
            job_id = _job_id(folder)
            state = module.job_states({job_id}).get(job_id) if job_id else None
            raise Error(
                f"job {job_id or 'without a number'} of the check waited for more than "
                f"{timeout_s:g} s in the queue{f' ({state.state})' if state else ''} and was "
                f"cancelled: ask {scheduler} why it does not start, or give it longer by --timeout"
            )
    finally:
        if process.poll() is None:
            if job_id := _job_id(folder):
                with contextlib.suppress(Error):  # it has just ended
                    output_of([module.CANCEL, job_id])
            process.terminate()
            process.wait()
    if not reports:
        raise Error(_describe_missing_report(folder, command))
    shutil.rmtree(folder, ignore_errors=True)
    return reports


def _wait_for_reports(process, folder, nodes, timeout_s, latency_s):
    """The reports of all nodes, or fewer if the job has ended; None if it waited too long."""
    started, answered, ended_at = time.monotonic(), False, None
    while True:
        for hello in folder.glob("hello.*.json"):
            answered = True
            answer = hello.with_name("answer" + hello.name.removeprefix("hello"))
            if not answer.exists():
                write_json(answer, {"time": time.time()})
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("report.*.json"))]
        if len(found) == nodes:
            return found
        now = time.monotonic()
        if process.poll() is not None:
            ended_at = ended_at or now
            late_s = LATE_FILES_S if process.returncode else latency_s
            if now - ended_at > late_s or not _job_id(folder):
                return found
        if now - started > timeout_s + (MINUTES * 60 if answered else 0):
            return found if answered else None
        time.sleep(0.02 if answered else 0.3)


def _job_id(folder):
    """The id of the job, from the output of the submit command, or None."""
    match = re.search(r"\d+(\.[\w.-]+)?", (folder / "submitted.out").read_text(errors="replace"))
    return match and match[0]


def _describe_missing_report(folder, command):
    job_id = _job_id(folder)
    if not job_id:
        message = _last_lines(folder / "submitted.out") or "no message"
        return f"the job of the check was refused: {message} (by: {command[0]})"
    outputs = [path for path in folder.iterdir() if not OURS.fullmatch(path.name)]
    printed = " | ".join(filter(None, map(_last_lines, outputs)))
    if LAUNCH_FAILED.search(printed):
        return (
            f"job {job_id} of the check could not start its processes, as those of runs by srun "
            f"are started: {printed}; Slurm's default protocol of MPI may not work here: export "
            "SLURM_MPI_TYPE as another one of `srun --mpi=list`, or use another launcher. "
            f"What is left of the job is in {folder}"
        )
    return (
        f"job {job_id} of the check ended without an answer from its node"
        f"{': ' + printed if printed else ''}; expected this folder, with its Python "
        f"({sys.executable}), on compute nodes under the same path: {Path.cwd()}. "
        f"What is left of the job is in {folder}"
    )


def _last_lines(path):
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    return " | ".join(list(filter(None, lines))[-3:])


# What nodes report.


def remarks_on_nodes(
    reports: Sequence[Mapping[str, Any]], expected: Mapping[str, Any]
) -> Iterator[Remark]:
    """Yield remarks on nodes; equal remarks on several nodes are joined.

    Args:
        reports: of check_node.py.
        expected: {"cores", "gpus" (None if devices are CPUs), "latency_s", "modules",
            "packages": {python: package}, "environments": names of those of the runs,
            "own_name": whether runs need the name that a node has for itself}.
    """
    hosts: dict[Remark, list[str]] = {}
    for report in reports:
        for remark in _on_node(report, expected):
            hosts.setdefault(remark, []).append(report["host"])
    for remark, names in hosts.items():
        yield Remark(remark.mark, f"{', '.join(names)}: {remark.text}")


def _on_node(report, expected):
    if not report["token"]:
        yield _fix(
            "does not see what is written into the results here: is that folder on a file system "
            "which all nodes share?"
        )
        return
    yield from _files_and_clock(report["rounds"], expected["latency_s"])
    if report["others"]:
        yield from _others(report["others"], expected["own_name"])
    if report["modules"]:
        yield _fix(report["modules"])
    elif expected["modules"]:
        yield _ok(f"modules {', '.join(expected['modules'])} are loaded")
    for python, (version, output) in report["pythons"].items():
        package = expected["packages"][python]
        if version is None:
            yield _fix(
                f"{python} cannot be started: {output}; where it leads (readlink -f) must be on a "
                "file system that compute nodes see, also the Python that uv installed "
                "(UV_PYTHON_INSTALL_DIR)"
            )
        elif not output:
            yield _fix(
                f"{python} has no {package}: is its folder seen there as here? Or make it anew"
            )
        else:
            yield _ok(f"{python}, {version}, with {package}")
    yield from _devices(report, expected)
    yield from _programs(report)
    room = report["tmpdir"]
    if "error" in room:
        yield _fix(
            f"temporary files cannot be written: {room['error']}; name a folder of the nodes as "
            "tmpdir in the profile's default-resources"
        )
    else:
        text = f"{room['free_mb']} MiB are free for temporary files in {room['folder']}"
        larger = "name a larger one as tmpdir in the profile's default-resources"
        yield _judged(room["free_mb"] >= FREE_MB, text, f"{text}: {larger}")
    for name, (code, output) in report["images"].items():
        last = (output.splitlines() or ["no message"])[-1]
        yield _judged(
            not code,
            f"image {name} starts, {last}",
            f"image {name} does not start (exit code {code}): {last}; is the runtime set up on "
            "compute nodes as it is here, with the image's folders? (docs/containers.md)",
        )


def _files_and_clock(rounds, latency_s):
    known = [exchange for exchange in rounds if exchange]
    slowest_s = max((exchange["round_trip_s"] for exchange in known), default=0.0)
    if len(known) < len(rounds):
        yield _fix(
            "a file that was written here, after the node looked for it, was not seen there: the "
            "results are not shared, or their file system shows new files late; put them elsewhere"
        )
    elif slowest_s > latency_s:
        yield _fix(
            f"files take {slowest_s:.0f} s to be seen there and back, and Snakemake waits "
            f"{latency_s:g} s for them: set latency-wait to {math.ceil(2 * slowest_s)} in the "
            "profile"
        )
    else:
        yield _ok(f"files in the results are seen there and back within {slowest_s:.2f} s")
    if not known:
        return
    fastest = min(known, key=lambda exchange: exchange["round_trip_s"])
    offset_s, within_s = fastest["offset_s"], fastest["round_trip_s"] / 2
    apart_s = round(-offset_s, 2) + 0.0  # never -0.0
    text = f"its clock is {apart_s:+.2f} s from that here (to within {within_s:.2f} s)"
    wrong = f"{text}: ask for its clock to be set (NTP); times in logs would mislead"
    yield _judged(abs(offset_s) - within_s <= SKEW_S, text, wrong)


def _others(others, own_name):
    """Remarks on whether processes on several nodes can connect to one another."""
    remedy = "put the names of all nodes into DNS or /etc/hosts, or say site.node_address"
    if others["unknown"]:
        names = ", ".join(f"{name} ({why})" for name, why in others["unknown"].items())
        yield _fix(f"does not know {names}: runs across nodes would not start; {remedy}")
    elif others["connection"]:
        yield _fix(
            f"cannot connect to another node at {others['connection']}: runs across nodes need any "
            "port of the others; ask for the firewall, or name another network in site.node_address"
        )
    else:
        yield _ok("the other nodes are known, and a free port of one is reached")
    if others["own"] and own_name:
        yield _fix(
            f"does not know its own name ({others['own']}), where JAX listens: runs across nodes "
            "would not start; put it into DNS or /etc/hosts with an address of that node"
        )


def _devices(report, expected):
    yield _judged(
        report["cores"] >= expected["cores"],
        f"{report['cores']} cores may be used, and runs ask for {expected['cores']}",
        f"a job that asks for {expected['cores']} cores may use {report['cores']}: correct "
        "site.cores_per_node or threads_per_device",
    )
    if expected["gpus"] is None:
        return
    if report["gpus"] is None:
        yield _fix("no nvidia-smi, so no NVIDIA driver: does the profile name a queue with GPUs?")
    else:
        yield _judged(
            report["gpus"] == expected["gpus"],
            f"{report['gpus']} GPUs are listed by nvidia-smi",
            f"nvidia-smi lists {report['gpus']} GPUs in a job that asks for {expected['gpus']}: "
            "correct site.devices_per_node or site.job.gpu_request",
        )
    if driver := report["driver"]:
        misfits = list(trainer_image.misfits(expected["environments"], driver))
        for misfit in misfits:
            yield _fix(f"envs/{misfit.environment} {misfit.reason}: {misfit.remedy}")
        if not misfits:
            yield _ok(f"driver {driver} is new enough for the CUDA of the environments")


def _programs(report):
    for names, program in report["programs"]:
        yield _judged(
            program,
            f"{program} is on the path",
            f"{' or '.join(names)} is not on the path: load it by site.modules, or leave out runs "
            "that need it",
        )
    if report["mpi"] == []:
        yield _fix(
            "no mpirun on the path or in the trainer's environment: load MPI by site.modules, or "
            + tools.dlbench_command("environment envs/train --extra horovod")
        )
    elif report["mpi"]:
        path, output, works = report["mpi"][0]
        yield _judged(works, f"{path} is {output}", f"{path} does not work: {output}")
    if report["srun_mpi"] is not None:
        listed, chosen = report["srun_mpi"], report["mpi_type"]
        kinds = sorted(set(re.findall(r"\b(pmix\w*|pmi2|cray_shasta)\b", listed)))
        if not kinds:
            yield _fix(f"srun knows no protocol of MPI ({listed}): use the launcher mpirun")
        elif chosen not in kinds:
            best = "pmix" if "pmix" in kinds else kinds[0]
            yield _fix(
                f"srun speaks {chosen or 'nothing'} to MPI and knows {', '.join(kinds)}: "
                f"export SLURM_MPI_TYPE={best}"
            )
        else:
            yield _ok(f"srun speaks {chosen} to MPI")
