"""The cluster of a run: the addresses of its processes, and the rank of this one.

- TF_CONFIG has both if a launcher has set it (dlbench/starting/launchers/local.py, or a site's own
  scheduler), whatever the framework.
- Otherwise they follow from Slurm's variables: the first tasks on each node are its workers, the
  others are of the other kinds. The ports follow from the job's id, so that two jobs on one node
  use different ones. On one node the processes connect over the loopback interface, on several by
  the names of the nodes. These are resolved here, before a framework is imported: a framework would
  retry for minutes.
"""

import itertools
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlbench import Error
from dlbench.common import networks, plugins
from dlbench.trainer.strategy import Spec

PORTS_PER_JOB = 64
# Below 32 768, the first of Linux's ephemeral ports, which any connection may take at any time.
# 199 is prime, so that jobs with neighbouring ids get different ports.
PORTS = range(20_000, 20_000 + 199 * PORTS_PER_JOB)
# How long a process waits for the others in a collective. It is this long because hang_limit_s
# decides whether a run hangs. By default NCCL under PyTorch gives up after 10 min and Gloo under
# Horovod after 30 s, even if another rank only compiles, evaluates or writes a checkpoint.
EXCHANGE_TIMEOUT_S = 7 * 24 * 3600
RENDEZVOUS_TIMEOUT_S = 600  # until the last process has started: containers start slowly


# Variable with the addresses of nodes that are not reached by their names, as JSON.
NODE_ADDRESSES = "DLBENCH_NODE_ADDRESSES"


# Variables with the rank of a process, and with its number on its node, by protocol.
RANKS = {
    "slurm": ("SLURM_PROCID", "SLURM_LOCALID"),
    "mpi": ("RANK", "LOCAL_RANK"),
    "horovod": ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK"),
    "torchrun": ("RANK", "LOCAL_RANK"),
}


class Unreachable(Error):
    """The rendezvous of a run's processes failed, for a reason that may be transient."""

    before_first_step = True  # a field of run_end


@dataclass(frozen=True)
class Cluster:
    """Addresses (`host:port`) of all tasks by kind of job; `job` and `task` are of this process."""

    addresses: dict[str, list[str]]
    job: str
    task: int

    @property
    def local_rank(self) -> int:
        """Number of tasks of this kind on this host that come before this one."""
        addresses = self.addresses[self.job]
        hosts = [address.rpartition(":")[0] for address in addresses]
        return hosts[: self.task].count(hosts[self.task])

    @property
    def hosts(self) -> list[str]:
        """The hosts of all tasks, the first task's first."""
        addresses = itertools.chain(*self.addresses.values())
        return list(dict.fromkeys(address.rpartition(":")[0] for address in addresses))


def protocol(launcher: str) -> str:
    """How the processes of a launcher find one another: its PROTOCOL, see starting/launchers."""
    return plugins.constants("launchers", launcher)["PROTOCOL"]


def find(
    spec: Spec,
    wanted: dict[str, int],
    environ: Mapping[str, str] = os.environ,
    launchers: str = "local or srun",
    first_suffices: bool = False,
) -> Cluster:
    """The cluster of this process.

    Args:
        wanted: number of tasks of each kind of job that the run needs, as in {"worker": 2}.
        launchers: those that may start such a process, for the message.
        first_suffices: whether a process needs only the address of the first one.

    Raises Error: neither TF_CONFIG nor Slurm's variables are set, or they do not fit the run.
    """
    if "TF_CONFIG" in environ:
        cluster = _from_tf_config(environ["TF_CONFIG"])
    elif "SLURM_PROCID" in environ:
        cluster = from_slurm(wanted, spec.nodes, environ)
        check_names(cluster.hosts[:1] if first_suffices else cluster.hosts)
    else:
        raise Error(
            f"strategy {spec.strategy} needs to know its other processes, but neither TF_CONFIG "
            f"nor Slurm's variables are set: start it with --launcher {launchers}"
        )
    counts = {job: len(addresses) for job, addresses in cluster.addresses.items()}
    if counts != wanted:
        raise Error(f"the run needs the processes {_listed(wanted)}, found {_listed(counts)}")
    # Otherwise gRPC would connect to them through the proxy.
    os.environ.update(networks.no_proxy_variables(cluster.hosts))
    return cluster


def _from_tf_config(text):
    try:
        config = json.loads(text)
        addresses = {job: list(tasks) for job, tasks in config["cluster"].items()}
        task = config["task"]
        cluster = Cluster(addresses, task["type"], int(task["index"]))
        addresses[cluster.job][cluster.task]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise Error(
            'TF_CONFIG: expected {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
            f'"worker", "index": 0}}}}, found {text!r} ({error!r})'
        ) from error
    return cluster


def from_slurm(
    wanted: dict[str, int], nodes: int, environ: Mapping[str, str] = os.environ
) -> Cluster:
    """The cluster of the tasks of a Slurm step, with equally many workers on each node.

    Raises Error: a variable is missing, or there are too few tasks.
    """
    try:
        here = int(environ["SLURM_NODEID"]), int(environ["SLURM_LOCALID"])
        hosts = networks.expand_hosts(
            environ.get("SLURM_STEP_NODELIST") or environ["SLURM_JOB_NODELIST"]
        )
        counts = expand_tasks(
            environ.get("SLURM_STEP_TASKS_PER_NODE") or environ["SLURM_TASKS_PER_NODE"]
        )
        job_id, step = int(environ["SLURM_JOB_ID"]), environ.get("SLURM_STEP_ID", "0")
        known = json.loads(environ.get(NODE_ADDRESSES, "{}"))
    except KeyError as error:
        raise Error(f"{error.args[0]} is not set: was the trainer started by srun?") from None
    except ValueError as error:
        raise Error(f"Slurm's variables are not as expected: {error}") from None
    if len(hosts) != len(counts):
        raise Error(f"Slurm's variables name {len(hosts)} nodes, and tasks for {len(counts)}")
    hosts = [known.get(host, host) for host in hosts] if len(hosts) > 1 else [networks.LOOPBACK]
    number = job_id * 7 + (int(step) if step.isdigit() else 0)
    base = PORTS[number * PORTS_PER_JOB % len(PORTS)]
    places = [(node, task) for node, count in enumerate(counts) for task in range(count)]
    per_node = wanted["worker"] // nodes
    workers = [place for place in places if place[1] < per_node]
    others = iter(place for place in places if place[1] >= per_node)
    assigned = {
        job: workers if job == "worker" else list(itertools.islice(others, count))
        for job, count in wanted.items()
    }
    # Numbered over all nodes: several nodes may be one machine, as in tests.
    port = {place: base + number % PORTS_PER_JOB for number, place in enumerate(places)}
    addresses = {
        job: [f"{hosts[place[0]]}:{port[place]}" for place in tasks]
        for job, tasks in assigned.items()
    }
    for job, tasks in assigned.items():
        if here in tasks:
            return Cluster(addresses, job, tasks.index(here))
    raise Error(
        f"the run needs the processes {_listed(wanted)} on {nodes} node(s), found the Slurm tasks "
        f"{' + '.join(map(str, counts))}"
    )


def check_names(names: Iterable[str]) -> None:
    """Check that this node can resolve the names of a run's nodes; else it is Unreachable."""
    if unknown := networks.unresolved_names(names):
        listed = ", ".join(f"{name} ({why})" for name, why in unknown.items())
        raise Unreachable(
            f"node {socket.gethostname()} does not know {listed}: have the names of all nodes put "
            "into DNS or /etc/hosts, or say in site.node_address how they are reached"
        )


def check_host_name() -> None:
    """Check that a server, as Gloo's, can listen at the address of this node's host name."""
    if not networks.listening_address():
        raise Unreachable(
            f"node {socket.gethostname()}: its host name does not resolve to an address of it, "
            "where Gloo listens: have the name put into DNS or /etc/hosts with an address of that "
            "node"
        )


def check_port_free(address: str) -> None:
    """Check that a server can listen at the port of an address (`host:port`)."""
    port = int(address.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise Unreachable(
            f"the processes of the run cannot rendezvous at {address}: port {port} "
            f"({os.strerror(error.errno or 0)})"
        ) from error


def expand_tasks(text: str) -> list[int]:
    """Tasks on each node from Slurm's short form.

    >>> expand_tasks("4(x2),1")
    [4, 4, 1]
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            raise Error(f"expected tasks per node as in 4(x2),1, found {text!r}")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _listed(counts):
    return ", ".join(f"{count} {job}" for job, count in counts.items()) or "none"
