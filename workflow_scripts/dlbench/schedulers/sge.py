"""Grid Engine: Son of, Open, Univa or Altair."""

import getpass
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from dlbench import Error
from dlbench.common import networks, phrases
from dlbench.schedulers import (
    Job,
    JobState,
    Nodes,
    Queue,
    clock_seconds,
    group_alike,
    output_of,
)

JOB_ID = "JOB_ID"
PROGRAMS = ("qsub", "qstat", "qdel", "qacct")
QUEUE = "queue"
CANCEL = "qdel"
OPEN_MPI = "gridengine"
# The parallel environment must have control_slaves TRUE.
REMOTE_SHELL = "qrsh -inherit -nostdin -V"

QUEUED = ("JB_submission_time", "JAT_start_time")
MAX_SECONDS = 1e11  # of a date since 1970
LIMIT_EXCEEDED = 37  # "qmaster enforced h_rt, h_cpu, or h_vmem limit"
KILLED = 137
BY_SLOT, BY_JOB = "YES", "JOB"  # the column consumable of a complex
NORMAL_REASONS = ("state qw", "There are no messages available")
UNUSABLE = set("acdEosuCDS")  # letters of the states of a queue that starts no jobs


def queues() -> dict[str, Queue]:
    """The queues that users may submit to, by name."""
    nodes_by_queue: dict[str, list[Nodes]] = {}
    for name, node in _instances():
        nodes_by_queue.setdefault(name, []).append(node)
    return {
        name: Queue(
            name=name,
            default=len(nodes_by_queue) == 1,
            up=any(node.up for node in nodes),
            time_limit_s=_limit_s(name),
            nodes=group_alike(nodes),
        )
        for name, nodes in nodes_by_queue.items()
    }


def job_states(job_ids: Collection[str]) -> dict[str, JobState]:
    """{job id: JobState} of the jobs that the scheduler knows."""
    if not job_ids:
        return {}
    try:
        alive = _alive()
    except Error:
        return {}  # a job that qacct does not know may be running
    job_states = {job_id: alive.get(job_id) or _ended(job_id) for job_id in job_ids}
    return {job_id: job_state for job_id, job_state in job_states.items() if job_state}


def waiting(job_ids: Collection[str]) -> dict[str, str]:
    """Why jobs have not started, by id: known in an error state, or if schedd_job_info is true."""
    try:
        listed = _parsed(output_of(["qstat", "-u", getpass.getuser(), "-s", "p", "-xml"]))
    except Error:
        return {}
    states = {
        job.findtext("JB_job_number"): job.findtext("state") for job in listed.iter("job_list")
    }
    known = [job_id for job_id in states if job_id in job_ids]
    return {job_id: _reason(job_id) or f"state {states[job_id]}" for job_id in known}


def _reason(job_id):
    try:
        text = output_of(["qstat", "-j", job_id])
    except Error:
        return ""
    error = re.search(r"^error reason\s+\d+:\s+(.+)$", text, re.MULTILINE)
    reason = error or re.search(r"^scheduling info:\s+(.+)$", text, re.MULTILINE)
    return reason[1].strip() if reason and "information is turned off" not in reason[1] else ""


def queue_times(job_id: str) -> tuple[float, float] | None:
    """When a running job was submitted and when it started."""
    job = _parsed(output_of(["qstat", "-j", job_id, "-xml"]))
    dates = [date.text or "" for name in QUEUED for date in list(job.iter(name))[:1]]
    if len(dates) < len(QUEUED):
        return None
    submitted, started = map(float, dates)
    scale = 1e3 if submitted > MAX_SECONDS else 1.0  # Univa counts milliseconds
    return submitted / scale, started / scale


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Names of the nodes of a job, from its variables; [] if unknown."""
    try:
        lines = Path(environ["PE_HOSTFILE"]).read_text().splitlines()
    except (KeyError, OSError):
        # A job without a parallel environment has one slot, on this node.
        return [environ["HOSTNAME"]] if environ.get(JOB_ID) and environ.get("HOSTNAME") else []
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


def submission(request: Job, logs: str | Path) -> list[str]:
    """The command that submits a job, without its script.

    Slots are those of all nodes; the parallel environment decides how they are spread.
    """
    slots = request.nodes * request.cores_per_node
    command = ["qsub", "-terse", "-cwd", "-V", "-S", "/bin/sh", "-r", "n", "-j", "y"]
    command += ["-o", str(logs), "-N", request.name]
    for option, resource in (("-q", "queue"), ("-P", "project"), ("-A", "account")):
        command += [option, request.resources[resource]] if request.resources.get(resource) else []
    if slots > 1:
        command += ["-pe", _parallel_environment(request), str(slots)]
    return [*command, "-l", ",".join(_complexes(request)), *request.options]


def wait_command(request: Job, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    return [*submission(request, folder), "-sync", "y", str(script)]


def _parallel_environment(request):
    name = request.resources.get("pe")
    if not name:
        slots = request.nodes * request.cores_per_node
        raise Error(
            f"{request.name} needs {slots} slots and so the name of a "
            "parallel environment (qconf -spl): give it in the profile's default-resources as pe"
        )
    return name


def unsupported_jobs(jobs: Iterable[Job]) -> Iterator[tuple[str, Job]]:
    """(reason, job) of each job whose GPUs Grid Engine cannot count as requested."""
    with_gpus = [job for job in jobs if job.gpus_per_node]
    consumables = _consumables() if with_gpus else {}
    for job in with_gpus:
        try:
            _gpus(job.gpu_request, job.gpus_per_node, job.per_node["cores"], job.nodes, consumables)
        except Error as error:
            yield str(error), job


def _complexes(request):
    """The requests of -l. All names but that of the time limit are chosen by the site."""
    slots, resources = request.cores_per_node, request.resources
    memory = resources.get("memory_complex")
    consumables = _consumables() if memory or request.gpus_per_node else {}
    yield f"h_rt={request.time_min * 60}"
    if request.node:
        yield f"hostname={'|'.join(networks.expand_hosts(request.node))}"
    if memory:
        by_slot = _consumable_of(memory, consumables, "memory_complex in the profile") == BY_SLOT
        yield f"{memory}={math.ceil(request.memory_mb / slots) if by_slot else request.memory_mb}M"
    if request.gpus_per_node:
        name, _, kind = request.gpu_request.partition(":")
        number = _gpus(
            request.gpu_request, request.gpus_per_node, slots, request.nodes, consumables
        )
        yield f"{name}={number}"
        if kind:
            yield f"{name}_type={kind}"
    if request.exclusive and resources.get("exclusive_complex"):
        yield f"{resources['exclusive_complex']}=true"


def _gpus(request, gpus, slots, nodes, consumables):
    """The number of GPUs in -l by which a job gets `gpus` on each node.

    Raises Error: no number does.
    """
    name = request.partition(":")[0]
    counted_by = _consumable_of(name, consumables, "site.job.gpu_request")
    if counted_by == BY_SLOT and gpus % slots:
        raise Error(
            f"asks for {gpus} GPUs and {slots} slots a node, and Grid Engine counts {name} by slot "
            f"(qconf -sc: consumable {counted_by}), of which it gives whole numbers only: say as "
            "site.cores_per_node how many slots a node has for its GPUs, as one for each, or have "
            f"{name} counted by job (consumable {BY_JOB})"
        )
    if counted_by == BY_JOB and nodes > 1:
        raise Error(
            f"asks for {gpus} GPUs on each of {nodes} nodes, and Grid Engine counts {name} by job "
            f"(qconf -sc: consumable {counted_by}), on the first node alone: leave such runs out, "
            f"or have {name} counted by slot (consumable {BY_SLOT})"
        )
    return gpus // slots if counted_by == BY_SLOT else gpus


def _consumable_of(name, consumables, where):
    if name not in consumables:
        raise Error(
            f"asks for {name}, and Grid Engine has no complex of that name (qconf -sc)"
            f"{phrases.did_you_mean(name, consumables)}: correct {where}"
        )
    return consumables[name]


def _consumables():
    """{name of a complex, long and short: its column consumable}: BY_SLOT, BY_JOB, HOST or NO."""
    consumables = {}
    for line in output_of(["qconf", "-sc"]).splitlines():
        columns = line.split()
        if len(columns) == 8 and not line.startswith("#"):
            long, short, counted_by = columns[0], columns[1], columns[5]
            consumables[long] = consumables[short] = counted_by
    return consumables


def _instances():
    """(name of a queue, one of its nodes) of all queues and nodes."""
    for host in _parsed(output_of(["qhost", "-q", "-xml"])).findall("host"):
        values = {value.get("name"): value.text or "" for value in host.findall("hostvalue")}
        for queue in host.findall("queue"):
            fields_of_queue = {
                value.get("name"): value.text or "" for value in queue.findall("queuevalue")
            }
            up = not UNUSABLE & set(fields_of_queue["state_string"])
            yield (
                queue.get("name"),
                Nodes(1, int(fields_of_queue["slots"]), _mb(values["mem_total"]) or None, up=up),
            )


def _limit_s(queue):
    """The longest limit of a queue; limits of some of its nodes are in brackets."""
    text = output_of(["qconf", "-sq", queue]).replace("\\\n", " ")
    match = re.search(r"^h_rt\s+(.+)$", text, re.MULTILINE)
    limits = [clock_seconds(part) for part in re.split(r"[\s,=\[\]]+", match[1]) if ":" in part]
    if not limits or "INFINITY" in match[1]:
        return None
    return max(limits)


def _alive():
    """{job id: JobState} of this user's jobs that wait or run."""
    job_states = {}
    for job in _parsed(output_of(["qstat", "-u", getpass.getuser(), "-xml"])).iter("job_list"):
        state = job.findtext("state")
        # A job in an error state waits until someone clears that state.
        status = "failed" if "E" in state else "running"
        job_states[job.findtext("JB_job_number")] = JobState(state, status)
    return job_states


def _ended(job_id):
    """The state of a job by the accounting, which lags some seconds; None if it is not listed."""
    try:
        text = output_of(["qacct", "-j", job_id])
    except Error:
        return None
    # The last record is that of the last start.
    record = text.rpartition("=" * 20)[2]
    return _job_state(dict(re.findall(r"^(\w+) +(.*)$", record, re.MULTILINE)))


def _job_state(fields):
    """The state of a job by its record in the accounting.

    A job over its time limit has failed code 37, or 100 as any killed job, if the daemon of the
    node killed it first.
    """
    failed = int(fields["failed"].split()[0])
    code = int(fields["exit_status"].split()[0])
    if failed == 0 and code == 0:
        return JobState("exit code 0", "ok")
    state = f"exit code {code}" + (f", failed {fields['failed'].strip()}" if failed else "")
    limits = dict(re.findall(r"(h_rt|h_vmem)=([^\s,]+)", fields.get("category", "")))
    if code == KILLED or failed == LIMIT_EXCEEDED:
        lasted_s = float(fields["ru_wallclock"].strip().rstrip("s"))
        if "h_rt" in limits and lasted_s >= clock_seconds(limits["h_rt"]):
            return JobState(state, "timeout")
        if failed == LIMIT_EXCEEDED:
            return JobState(state, "oom" if "h_vmem" in limits else "timeout")
    return JobState(state, "failed")


def _mb(text):
    """MiB in Grid Engine's notation of a size, as in 23.5G; 0 if it is not known (-)."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", text.strip(), re.IGNORECASE)
    if not match:
        return 0
    return int(float(match[1]) * 1024 ** (" KMGT".index(match[2].upper() or " ") - 2))


def _parsed(text):
    try:
        return ElementTree.fromstring(text)  # noqa: S314 - of the scheduler that jobs trust
    except ElementTree.ParseError as error:
        raise Error(f"expected XML of Grid Engine, found something else: {error}") from None
