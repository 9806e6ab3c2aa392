"""Check whether a site is ready for a campaign, and report what must be fixed.

First come the checks on this machine: profile, plugin, scheduler, queue, site.yaml and the jobs of
runs. Then one short job reports from a compute node (dlbench/cluster/node_check.py).
"""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from dlbench import Error
from dlbench.cluster import jobs, new_site, node_check, profiles, queue_check, submitting
from dlbench.cluster.queue_check import SITE_FILE
from dlbench.cluster.remarks import Remark, fix, note, ok
from dlbench.common import files, phrases, plugins, tools
from dlbench.images import trainer_image
from dlbench.images.runtimes import Container
from dlbench.plan import site_devices
from dlbench.schedulers import JobRequest
from dlbench.starting import start_command
from dlbench.starting.launchers import mpirun
from dlbench.study import config, trainer_environments
from dlbench.trainer import engine

JOB_MB = 1000
LEAST_KNOWN_S = 60  # jobs that have ended are looked at every few seconds, and lost after a minute


def print_remarks(
    name: str, configfiles: list[str], with_job: bool, timeout_s: float, as_json: bool = False
) -> bool:
    """Print all remarks, each as soon as it is known; as JSON all at the end.

    Returns:
        True if there is nothing to fix.

    Args:
        name: of the profile, or its folder.
        timeout_s: how long the job on a compute node may wait in the queue.
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
        study = config.study_from_files(configfiles)
    except Error as error:
        yield fix(str(error))
        return
    yield _profile(profile)
    yield _plugin(profile)
    yield from _site_file(study.site, profile.executor)
    scheduler = submitting.scheduler(profile.executor, profile.submit_cmd)
    if scheduler is None:
        yield _without_scheduler(profile.executor)
        return
    checked = list(_scheduler(scheduler, profile, study))
    yield from checked
    if not with_job:
        yield note("compute nodes: not looked at (--no-job)")
    elif any(remark.mark == "fix" for remark in checked) or jobs.describe_auto(study.site):
        yield note("compute nodes: not looked at before the above is fixed")
    else:
        yield from _nodes(scheduler, profile, study, timeout_s)


def _profile(profile):
    folder = profile.file.parent
    if not profile.hidden:
        return ok(f"profile {profile.file}, executor {profile.executor}")
    target = f"~/.config/snakemake/{folder.name}"
    return note(
        f"Snakemake knows this profile as --profile {folder} only; for --profile {folder.name}: "
        f'mkdir -p ~/.config/snakemake && ln -sfn "$PWD/{folder}" {target}'
    )


def _plugin(profile):
    executor = profile.executor
    if profiles.installed(executor):
        return ok(f"Snakemake has the executor {executor}")
    return fix(
        f"{profiles.PLUGIN}{executor} is not installed for {sys.executable}; install it with: "
        f"{profiles.installation(executor)}"
    )


def _without_scheduler(executor):
    if executor == "local":
        return note("runs are trained on this machine; there is no scheduler to look at")
    return note(
        f"the executor {executor} is not one of dlbench's profiles: what it submits to is not "
        "looked at, and whether runs get the GPUs and nodes that they ask for is up to it"
    )


def _site_file(facts, executor):
    if not Path(SITE_FILE).exists() and executor != "local":
        yield fix(f"no {SITE_FILE} in {Path.cwd()}: say there what a node has (docs/clusters.md)")
    if facts["name"] == new_site.DEFAULT_NAME:
        yield note(
            f"site.name is {new_site.DEFAULT_NAME!r}, which readers of the results will not know"
        )
    missing_keys = [f"site.{key}" for key in ("interconnect", "storage") if not facts[key]]
    if missing_keys:
        yield note(f"{' and '.join(missing_keys)}: null; readers of the results need it")


def _scheduler(name, profile, study):
    """Remarks on the scheduler: its programs, whether it answers, its queues, the jobs of runs."""
    module = plugins.load("schedulers", name)
    if reason := submitting.describe_python():
        yield fix(reason)
    missing = tools.missing_program([(program,) for program in module.PROGRAMS])
    if missing:
        yield fix(f"{name}: {missing}: start where jobs are submitted, or load its module")
        return
    try:
        queues = module.queues()
    except Error as error:
        yield fix(f"{name} does not answer: {error}")
        return
    yield ok(f"{name} answers, and has {', '.join(sorted(queues))}")
    yield from queue_check.remarks(module, queues, profile, study)
    yield from _account(module, profile)
    forgets_after_s = module.forgets_after_s() if hasattr(module, "forgets_after_s") else None
    if forgets_after_s is not None and forgets_after_s < LEAST_KNOWN_S:
        yield note(
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
        yield note(f"accounts not looked at: {error}")
        return
    account = profile.value("train", "slurm_account")
    if account and known and account not in known:
        yield note(
            f"account {account!r} is not among yours{phrases.did_you_mean(account, known)}: "
            f"{', '.join(known)}"
        )
    elif known:
        yield ok(f"account {account or f'not given; yours are: {chr(44).join(known)}'}")


def _nodes(scheduler, profile, study, timeout_s):
    module = plugins.load("schedulers", scheduler)
    job = _job(module, profile, study)
    request = _request(module, profile, study)
    expected = _expected(profile, job, request, study)
    try:
        reports = node_check.run(scheduler, job, request, timeout_s, expected["latency_s"])
    except Error as error:
        yield fix(str(error))
        return
    hosts = [report["host"] for report in reports]
    if len(set(hosts)) < job.nodes:
        yield fix(f"a job on {job.nodes} nodes ran on {', '.join(hosts)} only")
    else:
        yield ok(f"a job ran on {', '.join(hosts)}")
    yield from _images(study)
    yield from node_check.remarks(reports, expected)


def _job(module, profile, study):
    """The job of the check: all devices of a node, and as many cores as runs request."""
    facts = study.site
    devices = site_devices.devices(facts)
    wanted = queue_check.jobs_of_study(study, study.runs)[0] + queue_check.jobs_of_searches(study)
    cores = [job.cores_per_task * job.tasks_per_node for _, job in wanted]
    several = facts["nodes"] > 1 and any(run.nodes > 1 for run in study.runs)
    on_several_nodes = several and hasattr(module, "on_each_node")
    return JobRequest(
        name="check_site",
        nodes=2 if on_several_nodes else 1,
        tasks_per_node=1,
        cores_per_node=max(cores, default=1),
        memory_mb=JOB_MB,
        minutes=node_check.MINUTES,
        gpus_per_node=devices.per_node if devices.kind == "gpu" else 0,
        gpu_request=facts["job"]["gpu_request"],
        exclusive=False,
        extra=tuple(shlex.split(facts["job"]["extra"])),
        resources=profile.defaults,
        speaks_mpi=hasattr(module, "on_each_node")
        and any(run.launcher == "srun" for run in study.runs),
    )


def _request(module, profile, study):
    """The request for check_node.py: what it checks."""
    launchers = {run.launcher for run in study.runs}
    contained = [run for run in study.runs if start_command.contained(run)]
    bare = [run for run in study.runs if not start_command.contained(run)]
    pythons = {sys.executable: "snakemake"}
    # {Python of an environment: the package of its framework}.
    environments = {
        trainer_environments.trainer_python(run.environment): engine.packages(run.framework)[0]
        for run in bare
        if trainer_environments.is_installed(run.environment)
    }
    pythons |= {str(path): package for path, package in environments.items()}
    runtimes = sorted({run.runtime for run in contained})
    programs = [p for name in runtimes for p in plugins.load("runtimes", name).PROGRAMS]
    return {
        "python": sys.executable,
        "pythons": pythons,
        "modules": study.site["modules"],
        "programs": [[names] if isinstance(names, str) else list(names) for names in programs],
        "mpi": _mpiruns(environments) if "mpirun" in launchers else None,
        "mpi_across": _across_nodes(module, study),
        "srun_mpi": any(run.launcher == "srun" and run.strategy == "horovod" for run in study.runs),
        "tmpdir": profile.value("train", "tmpdir"),
        "node_address": study.site.get("node_address"),
        "addresses": module.addresses([]) if hasattr(module, "addresses") else {},
        "images": dict(_image_commands(study)),
    }


def _mpiruns(pythons):
    """The mpiruns that the launcher would use: those of the environments, then that on PATH."""
    environments = [path.absolute().parents[1] for path in pythons]
    return [
        *(
            (str(folder / "bin" / "mpirun"), mpirun.library_variables(folder))
            for folder in environments
        ),
        ("mpirun", {}),
    ]


def _across_nodes(module, study):
    """What mpirun needs across nodes: its component for the scheduler, or a remote shell."""
    if study.site["nodes"] == 1 or not any(run.launcher == "mpirun" for run in study.runs):
        return None
    shells = [shell.split()[0] for shell in mpirun.remote_shells(module)]
    return {"component": module.OPEN_MPI, "shells": shells}


def _forms(study):
    """{file of an image's form: a run that takes it}."""
    return {trainer_image.form_path(run): run for run in study.runs if start_command.contained(run)}


def _images(study):
    for path in _forms(study):
        again = tools.snakemake_command("images")
        if reason := trainer_image.failure(path):
            yield fix(f"{reason} ({again} tries again)")
        elif not Path(path).exists():
            yield note(f"image {path}: not made yet ({again})")


def _image_commands(study):
    """Yield (name, command that starts the image's Python) for each form that is made."""
    gpus = site_devices.devices(study.site).kind == "gpu"
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


def _expected(profile, job, request, study):
    return {
        "cores": job.cores_per_node,
        "gpus": job.gpus_per_node or None,
        "latency_s": float(profile.content.get("latency-wait", 5)),
        "modules": request["modules"],
        "mpi_across": request["mpi_across"],
        "environments": sorted({run.environment for run in study.runs}),
        "packages": request["pythons"],
        "own_name": not job.gpus_per_node and any(run.framework == "jax" for run in study.runs),
    }
