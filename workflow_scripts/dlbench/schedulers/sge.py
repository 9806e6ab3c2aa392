"""Grid Engine: Son of, Open, Univa or Altair."""

import getpass
import math
import re
from pathlib import Path
from xml.etree import ElementTree

from dlbench import Error
from dlbench.common import phrases
from dlbench.schedulers import Fate, Nodes, Queue, alike, ask

JOB_ID = "JOB_ID"
PROGRAMS = ("qsub", "qstat", "qdel", "qacct")
QUEUE = "queue"
CANCEL = "qdel"
OPEN_MPI = "gridengine"
# The parallel environment must allow it: control_slaves TRUE.
REMOTE_SHELL = "qrsh -inherit -nostdin -V"

LIMIT_EXCEEDED = 37  # "qmaster enforced h_rt, h_cpu, or h_vmem limit"
KILLED = 137
BY_SLOT, BY_JOB = "YES", "JOB"  # of a complex, what is said as consumable
UNUSABLE = set("acdEosuCDS")  # letters of a queue's states in which no job starts


def queues():
    found = {}
    for name, node in _instances():
        found.setdefault(name, []).append(node)
    return {
        name: Queue(
            name=name,
            default=len(found) == 1,
            up=any(node.up for node in nodes),
            time_limit_s=_limit_s(name),
            nodes=alike(nodes),
        )
        for name, nodes in found.items()
    }


def fates(job_ids):
    if not job_ids:
        return {}
    try:
        alive = _alive()
    except Error:
        return {}  # what qacct does not know may be running
    found = {}
    for job_id in job_ids:
        fate = alive.get(job_id) or _ended(job_id)
        if fate:
            found[job_id] = fate
    return found


def resources(job):
    """Nothing: what it is submitted with is made from the resources that all have."""
    return {}


def hosts(environ):
    try:
        lines = Path(environ["PE_HOSTFILE"]).read_text().splitlines()
    except (KeyError, OSError):
        # A job in no parallel environment has one slot, where it runs.
        return [environ["HOSTNAME"]] if environ.get(JOB_ID) and environ.get("HOSTNAME") else []
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


def submission(asked, logs):
    """The command that submits a job, but for its script.

    Slots are counted over all nodes; the parallel environment says how they are spread.
    """
    slots = asked.nodes * asked.cores_per_node
    command = ["qsub", "-terse", "-cwd", "-V", "-S", "/bin/sh", "-r", "n", "-j", "y"]
    command += ["-o", str(logs), "-N", asked.name]
    for option, resource in (("-q", "queue"), ("-P", "project"), ("-A", "account")):
        command += [option, asked.given[resource]] if asked.given.get(resource) else []
    if slots > 1:
        command += ["-pe", _parallel_environment(asked), str(slots)]
    return [*command, "-l", ",".join(_complexes(asked)), *asked.extra]


def wait_command(asked, script, folder):
    return [*submission(asked, folder), "-sync", "y", str(script)]


def _parallel_environment(asked):
    found = asked.given.get("pe")
    if not found:
        raise Error(
            f"{asked.name} needs {asked.nodes * asked.cores_per_node} slots and so the name of a "
            "parallel environment (qconf -spl): give it in the profile's default-resources as pe"
        )
    return found


def unfit(jobs):
    asking = [job for job in jobs if job.gpus_per_node]
    counting = _counting() if asking else {}
    for job in asking:
        try:
            _gpus(job.gpu_request, job.gpus_per_node, job.each["cores"], job.nodes, counting)
        except Error as error:
            yield str(error), job


def _complexes(asked):
    """What is asked for by -l. The names are a site's own but for that of the time."""
    slots, given, memory = asked.cores_per_node, asked.given, asked.given.get("memory_complex")
    counting = _counting() if memory or asked.gpus_per_node else {}
    yield f"h_rt={asked.minutes * 60}"
    if memory:
        by_slot = _counted(memory, counting, "memory_complex in the profile") == BY_SLOT
        yield f"{memory}={math.ceil(asked.memory_mb / slots) if by_slot else asked.memory_mb}M"
    if asked.gpus_per_node:
        name, _, kind = asked.gpu_request.partition(":")
        number = _gpus(asked.gpu_request, asked.gpus_per_node, slots, asked.nodes, counting)
        yield f"{name}={number}"
        if kind:
            yield f"{name}_type={kind}"
    if asked.exclusive and given.get("exclusive_complex"):
        yield f"{given['exclusive_complex']}=true"


def _gpus(request, gpus, slots, nodes, counting):
    """How many GPUs -l must ask for, so that a job has so many on each node.

    Raises:
        Error: it cannot be asked for.
    """
    name = request.partition(":")[0]
    how = _counted(name, counting, "site.job.gpu_request")
    if how == BY_SLOT and gpus % slots:
        raise Error(
            f"asks for {gpus} GPUs and {slots} slots a node, and Grid Engine counts {name} by slot "
            f"(qconf -sc: consumable {how}), of which it gives whole numbers only: say as "
            "site.cores_per_node how many slots a node has for its GPUs, as one for each, or have "
            f"{name} counted by job (consumable {BY_JOB})"
        )
    if how == BY_JOB and nodes > 1:
        raise Error(
            f"asks for {gpus} GPUs on each of {nodes} nodes, and Grid Engine counts {name} by job "
            f"(qconf -sc: consumable {how}), on the first node alone: leave such runs out, or have "
            f"{name} counted by slot (consumable {BY_SLOT})"
        )
    return gpus // slots if how == BY_SLOT else gpus


def _counted(name, counting, where):
    if name not in counting:
        raise Error(
            f"asks for {name}, and Grid Engine has no complex of that name (qconf -sc)"
            f"{phrases.did_you_mean(name, counting)}: correct {where}"
        )
    return counting[name]


def _counting():
    """{name of a complex, long and short: how it is counted}: one of the BY_, HOST, or NO."""
    found = {}
    for line in ask(["qconf", "-sc"]).splitlines():
        words = line.split()
        if len(words) == 8 and not line.startswith("#"):
            long, short, how = words[0], words[1], words[5]
            found[long] = found[short] = how
    return found


def _instances():
    """(name of a queue, Nodes of one), of all nodes and queues."""
    for host in _parsed(ask(["qhost", "-q", "-xml"])).findall("host"):
        values = {value.get("name"): value.text or "" for value in host.findall("hostvalue")}
        for queue in host.findall("queue"):
            own = {value.get("name"): value.text or "" for value in queue.findall("queuevalue")}
            up = not UNUSABLE & set(own["state_string"])
            yield (
                queue.get("name"),
                Nodes(1, int(own["slots"]), _mb(values["mem_total"]) or None, up=up),
            )


def _limit_s(queue):
    """The most of what a queue allows; in brackets are limits of some of its nodes."""
    text = ask(["qconf", "-sq", queue]).replace("\\\n", " ")
    match = re.search(r"^h_rt\s+(.+)$", text, re.MULTILINE)
    limits = [_seconds(part) for part in re.split(r"[\s,=\[\]]+", match[1]) if ":" in part]
    if not limits or "INFINITY" in match[1]:
        return None
    return max(limits)


def _alive():
    """Fates of this user's jobs that wait or run."""
    found = {}
    for job in _parsed(ask(["qstat", "-u", getpass.getuser(), "-xml"])).iter("job_list"):
        state = job.findtext("state")
        # A job in an error state waits for ever, for someone who clears it.
        status = "failed" if "E" in state else "running"
        found[job.findtext("JB_job_number")] = Fate(state, status)
    return found


def _ended(job_id):
    """The Fate of a job in the accounting; None where it is not, or not yet: qacct lags seconds."""
    try:
        text = ask(["qacct", "-j", job_id])
    except Error:
        return None
    # The last record is that of the last start.
    record = text.rpartition("=" * 20)[2]
    return _fate(dict(re.findall(r"^(\w+) +(.*)$", record, re.MULTILINE)))


def _fate(fields):
    """A record of the accounting, judged.

    What is killed for its time ends by code 37, or as any other that is killed, by 100, where the
    node's own daemon was faster.
    """
    failed = int(fields["failed"].split()[0])
    code = int(fields["exit_status"].split()[0])
    if failed == 0 and code == 0:
        return Fate("exit code 0", "ok")
    state = f"exit code {code}" + (f", failed {fields['failed'].strip()}" if failed else "")
    asked = dict(re.findall(r"(h_rt|h_vmem)=([^\s,]+)", fields.get("category", "")))
    if code == KILLED or failed == LIMIT_EXCEEDED:
        lasted_s = float(fields["ru_wallclock"].strip().rstrip("s"))
        if "h_rt" in asked and lasted_s >= _seconds(asked["h_rt"]):
            return Fate(state, "timeout")
        if failed == LIMIT_EXCEEDED:
            return Fate(state, "oom" if "h_vmem" in asked else "timeout")
    return Fate(state, "failed")


def _seconds(text):
    """Seconds in Grid Engine's notation of a time, as in 24:00:00 or 600."""
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part or 0)
    return total


def _mb(text):
    """MiB in Grid Engine's notation of a size, as in 23.5G; 0 where it is not known (-)."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", text.strip(), re.IGNORECASE)
    if not match:
        return 0
    return int(float(match[1]) * 1024 ** (" KMGT".index(match[2].upper() or " ") - 2))


def _parsed(text):
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise Error(f"expected XML of Grid Engine, found something else: {error}") from None
