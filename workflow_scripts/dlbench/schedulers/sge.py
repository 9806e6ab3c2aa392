"""Grid Engine: Son of, Open, Univa or Altair."""

import getpass
import re
from pathlib import Path
from xml.etree import ElementTree

from dlbench import Error
from dlbench.schedulers import Fate, Queue, ask

JOB_ID = "JOB_ID"
PROGRAMS = ("qsub", "qstat", "qdel", "qacct")
QUEUE = "queue"
CANCEL = "qdel"

LIMIT_EXCEEDED = 37  # "qmaster enforced h_rt, h_cpu, or h_vmem limit"
KILLED = 137
UNUSABLE = set("acdEosuCDS")  # letters of a queue's states in which no job starts


def queues():
    found = {}
    for queue, memory_mb in _instances():
        found.setdefault(queue.name, []).append((queue, memory_mb))
    limits = {name: _limit_s(name) for name in found}
    return {
        name: Queue(
            name=name,
            default=len(found) == 1,
            up=any(queue.up for queue, _ in instances),
            time_limit_s=limits[name],
            nodes=len(instances),
            cores_per_node=max(queue.cores_per_node for queue, _ in instances),
            memory_mb_per_node=max(memory_mb for _, memory_mb in instances),
        )
        for name, instances in found.items()
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


def _complexes(asked):
    """What is asked for by -l. The names are a site's own but for that of the time."""
    yield f"h_rt={asked.minutes * 60}"
    if asked.given.get("memory_complex"):
        # Counted by slot, as consumable complexes are.
        yield f"{asked.given['memory_complex']}={asked.memory_mb // asked.cores_per_node}M"
    if asked.gpus_per_node:
        name, _, kind = asked.gpu_request.partition(":")
        yield f"{name}={asked.gpus_per_node}"
        if kind:
            yield f"{name}_type={kind}"
    if asked.exclusive and asked.given.get("exclusive_complex"):
        yield f"{asked.given['exclusive_complex']}=true"


def _instances():
    """(Queue as it is on one node, MiB of memory of that node), of all nodes and queues."""
    for host in _parsed(ask(["qhost", "-q", "-xml"])).findall("host"):
        values = {value.get("name"): value.text or "" for value in host.findall("hostvalue")}
        for queue in host.findall("queue"):
            own = {value.get("name"): value.text or "" for value in queue.findall("queuevalue")}
            one = Queue(
                name=queue.get("name"),
                up=not UNUSABLE & set(own["state_string"]),
                cores_per_node=int(own["slots"]),
            )
            yield one, _mb(values["mem_total"])


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
