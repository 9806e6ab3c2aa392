"""Slurm."""

import contextlib
import getpass
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from dlbench import Error
from dlbench.common import networks
from dlbench.schedulers import (
    Job,
    JobState,
    Nodes,
    Queue,
    group_alike,
    output_of,
)

JOB_ID = "SLURM_JOB_ID"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
QUEUE = "slurm_partition"
CANCEL = "scancel"
OPEN_MPI = "slurm"
FULL = r"SubmitJobs?\w*Limit"
# Options of sbatch, by the names that resources have in profiles.
OPTIONS = {
    "slurm_partition": "partition", "slurm_account": "account", "constraint": "constraint",
    "qos": "qos", "reservation": "reservation",
}  # fmt: skip
# Jobs of our rules in the comment that Snakemake's executor slurm gives them; a module may put a
# prefix before the names of rules.
OUR_COMMENT = re.compile(
    r"rule_\w*?(?:train|convert_dataset|find_batch|measure_baseline)_wildcards_(?P<wildcards>.+)"
)

# BeginTime is the reason of a job that Slurm has requeued.
NORMAL_REASONS = ("None", "Priority", "Resources", "BeginTime", "Cleaning", "Prolog")

ALIVE = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING",
    "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "STOPPED",
)  # fmt: skip
# Beginnings of the states of nodes that start no jobs.
UNUSABLE = ("down", "drain", "drng", "fail", "maint", "inval", "unknown", "future")
ENDS = {
    "COMPLETED": "ok", "TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom",
    **dict.fromkeys(("PREEMPTED", "CANCELLED", "NODE_FAIL", "BOOT_FAIL"), "interrupted"),
}  # fmt: skip


def queues() -> dict[str, Queue]:
    """The queues that users may submit to, by name."""
    columns = "--format=%P|%a|%l|%D|%c|%m|%G|%T|%s"
    queues: dict[str, Queue] = {}
    # Without --exact sinfo joins nodes that differ in one line.
    for line in output_of(["sinfo", "--noheader", "--exact", columns]).splitlines():
        name, up, limit, count, cores, memory, gres, state, *size = line.split("|")
        most = "".join(size).rpartition("-")[2]  # of 1-infinite, or 2
        nodes = Nodes(
            count=int(count),
            cores=int(cores.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gpus=_gpus(gres),
            # An asterisk: the node does not answer.
            up=not state.lower().startswith(UNUSABLE) and not state.endswith("*"),
        )
        queue = queues.get(name) or Queue(
            name=name.rstrip("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_s=seconds(limit),
            nodes_per_job=int(most) if most.isdigit() else None,
        )
        queues[name] = replace(queue, nodes=group_alike((*queue.nodes, nodes)))
    return {queue.name: queue for queue in queues.values()}


def job_states(job_ids: Collection[str]) -> dict[str, JobState]:
    """{job id: JobState} of the jobs that the scheduler knows."""
    if not job_ids:
        return {}
    job_states: dict[str, JobState] = {}
    # squeue drops jobs after a while, and not every site has sacct.
    for command in (
        ["squeue", "--noheader", "--states=all", "--format=%i|%T", "--jobs"],
        ["sacct", "-X", "--noheader", "--parsable2", "--format=JobID,State", "--jobs"],
    ):
        unknown = sorted(set(job_ids) - job_states.keys())
        if not unknown:
            break
        try:
            lines = output_of([*command, ",".join(unknown)]).splitlines()
        except Error:
            continue
        for line in lines:
            job_id, _, state = line.partition("|")
            if job_id in job_ids and state:
                job_states.setdefault(job_id, _job_state(state))
    return job_states


def queue_times(job_id: str) -> tuple[float, float] | None:
    """When a running job was submitted and when it started."""
    line = output_of(["squeue", "--noheader", "--format=%V|%S", "--jobs", job_id]).strip()
    if not line:
        return None
    submitted, started = (datetime.fromisoformat(date).timestamp() for date in line.split("|"))
    return submitted, started


def variables(job_id: str) -> dict[str, str]:
    """The variables by which we and Open MPI know a job's nodes and tasks."""
    line = output_of(["scontrol", "show", "job", "--oneliner", job_id])
    found = dict(re.findall(r"\b(NodeList|NumNodes|NumTasks)=(\d+|[^(\s]\S*)", line))
    if len(found) < 3:
        return {}
    nodes, tasks = int(found["NumNodes"]), int(found["NumTasks"])
    return {
        "SLURM_JOB_NODELIST": found["NodeList"],
        "SLURM_NODELIST": found["NodeList"],
        "SLURM_TASKS_PER_NODE": f"{max(1, tasks // nodes)}(x{nodes})",
    }


def jobs_of_folder(folder: Path) -> dict[str, str]:
    """{job id: id of its run, or ""} of the jobs that the executor slurm submitted there."""
    command = ["squeue", "--me", "--noheader", "--format=%i|%k|%Z"]
    found = {}
    with contextlib.suppress(Error):
        for line in output_of(command).splitlines():
            job_id, _, rest = line.partition("|")
            comment, _, its_folder = rest.partition("|")
            ours = OUR_COMMENT.fullmatch(comment)
            if ours and Path(its_folder) == folder.resolve():
                found[job_id] = ours["wildcards"]
    return found


def waiting(job_ids: Collection[str]) -> dict[str, str]:
    """Why jobs have not started, by id."""
    command = ["squeue", "--me", "--noheader", "--states=PENDING", "--format=%i|%r"]
    try:
        jobs = [line.split("|", 1) for line in output_of(command).splitlines() if "|" in line]
    except Error:
        return {}
    return {job_id: reason for job_id, reason in jobs if job_id in job_ids}


def limits(account: str | None, qos: str | None, queue: str | None) -> list[Queue]:
    """What QOS and associations allow this user's jobs.

    `account, qos, queue`: that the jobs request; None: the default.

    Raises Error: Slurm keeps no accounts, or does not answer.
    """
    columns = "format=Account,Partition,DefaultQOS,MaxWall,MaxTRES,MaxSubmitJobs"
    user = f"user={getpass.getuser()}"
    lines = output_of(
        ["sacctmgr", "--noheader", "--parsable2", "show", "associations", user, columns]
    )
    found, used = [], {qos, _qos_of_partition(queue)}
    for its_account, partition, default, *most in _columns(lines, 6):
        if account in (None, its_account) and partition in ("", queue):
            found.append(_limits(f"the association with account {its_account}", *most))
            used |= set() if qos else {default}
    columns = "format=Name,MaxWall,MaxTRES,MaxSubmitJobsPerUser"
    lines = output_of(["sacctmgr", "--noheader", "--parsable2", "show", "qos", columns])
    for name, *most in _columns(lines, 4):
        if name in used:
            found.append(_limits(f"QOS {name}", *most))
    return found


def _columns(text, number):
    return [line.split("|") for line in text.splitlines() if line.count("|") == number - 1]


def _qos_of_partition(name):
    if not name:
        return None
    match = re.search(
        r"\bQoS=(\S+)", output_of(["scontrol", "--oneliner", "show", "partition", name])
    )
    return match and match[1]


def _limits(source, wall, tres, jobs):
    most = dict(part.split("=", 1) for part in f"{tres},jobs={jobs}".split(",") if "=" in part)
    most = {name: int(number) for name, number in most.items() if number.isdigit()}
    return Queue(
        source,
        time_limit_s=seconds(wall),
        nodes_per_job=most.get("node"),
        cores_per_job=most.get("cpu"),
        gpus_per_job=most.get("gres/gpu"),
        jobs_at_once=most.get("jobs"),
    )


def submission(request: Job, logs: str | Path) -> list[str]:
    """The command that submits a job, without its script."""
    return _sbatch(request, f"{logs}/%j.log")


def _sbatch(request, output):
    command = ["sbatch", "--parsable", f"--job-name={request.name}", f"--output={output}"]
    # A preempted job ends and a new job follows it; site.job.extra may change that.
    command += ["--no-requeue", f"--time={request.time_min}", f"--nodes={request.nodes}"]
    command += [f"--ntasks-per-node={request.tasks_per_node}"]
    command += [f"--cpus-per-task={request.cores_per_task}"]
    command += [f"--mem={request.memory_mb}"] if request.memory_mb else []
    command += ["--exclusive"] if request.exclusive else []
    if request.gpus_per_node:
        kind = request.gpu_request.partition(":")[2]
        command.append(f"--gpus-per-node={kind + ':' if kind else ''}{request.gpus_per_node}")
    if request.node:
        command.append(f"--nodelist={request.node}")
    command += [
        f"--{OPTIONS[name]}={value}" for name, value in request.resources.items() if name in OPTIONS
    ]
    return [*command, *request.options]


def job_id(output: str) -> str:
    """The id of a job in what `submission` prints: ID, or ID;CLUSTER after a site's greeting."""
    return output.split()[-1].partition(";")[0]


def wait_command(request: Job, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    return [*_sbatch(request, f"{folder}/job.out"), "--wait", str(script)]


def on_each_node(request: Job) -> list[str]:
    """The prefix that runs a command on each node of a job."""
    return [
        "srun",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes * request.tasks_per_node}",
        # Since 22.05 srun does not take it over from the job.
        f"--cpus-per-task={request.cores_per_task}",
        *([] if request.speaks_mpi else ["--mpi=none"]),
        "--cpu-bind=none",
    ]


def accounts() -> list[str]:
    """Names of the accounts that this user may use; [] if Slurm keeps none.

    Raises Error: the accounting does not answer.
    """
    show = ["show", "associations", f"user={getpass.getuser()}", "format=Account"]
    lines = output_of(["sacctmgr", "--noheader", "--parsable2", *show]).splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


def forgets_after_s() -> int | None:
    """MinJobAge of slurm.conf, in seconds; None with accounting, or if Slurm does not say."""
    if _setting("AccountingStorageType") != "accounting_storage/slurmdbd":
        age = _setting("MinJobAge")
        return int(age) if age and age.isdecimal() else None
    return None


def cluster_name() -> str | None:
    """The ClusterName of slurm.conf; None if Slurm does not say."""
    return _setting("ClusterName")


def _setting(name):
    """The first word of a setting of slurm.conf; None if Slurm does not say."""
    try:
        settings = output_of(["scontrol", "show", "config"])
    except Error:
        return None
    found = re.search(rf"^{name}\s*=\s*(\S+)", settings, re.MULTILINE)
    return found[1] if found else None


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Names of the nodes of a job, from its variables; [] if unknown."""
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    return networks.expand_hosts(listed) if listed else []


def addresses(names: Collection[str]) -> dict[str, str]:
    """{name of a node: NodeAddr}, the addresses by which Slurm reaches nodes.

    `names`: of nodes; empty: all.
    """
    try:
        lines = output_of(
            ["scontrol", "show", "node", "--oneliner", *([",".join(names)] if names else [])]
        )
    except Error:
        return {}
    found = re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", lines, re.MULTILINE)
    return {name: address for name, address in found if not names or name in names}


def seconds(text: str) -> int | None:
    """Seconds in Slurm's notation of a time; None without a limit.

    >>> [seconds(text) for text in ("1-02:00:00", "30:00", "infinite")]
    [93600, 1800, None]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _job_state(state):
    word = state.split()[0].rstrip("+")  # e.g. of CANCELLED by 0
    return JobState(state, "running" if word in ALIVE else ENDS.get(word, "failed"))


def _gpus(gres):
    """GPUs in a list of resources such as gpu:a100:4(S:0-1),nvme:1."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts))
