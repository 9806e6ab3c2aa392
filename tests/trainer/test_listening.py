"""Which ports a run opens while it trains: what can be kept to this machine is."""

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.starting import start_unreachable
from dlbench.study.runs import Run
from support.machines.node_names import ELSEWHERE, NAME, as_node, may_be_a_node
from support.trainers.training_runs import SERVERS, TRAIN, TWO_DEVICES, command_of, events

LISTENS = "0A"  # of linux/tcp_states.h: TCP_LISTEN, as /proc/net/tcp has it
DEADLINE_S = 120


@contextlib.contextmanager
def training(log, start=list, **fields):
    """A run that has taken its first steps and goes on; `start` changes its command."""
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=100_000,
              devices_per_node=2, **fields)  # fmt: skip
    trainer = [sys.executable, TRAIN, *run.flags(), "--log", log]
    command = command_of(run, trainer, sys.executable)
    with subprocess.Popen(
        start(command), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not (log.is_file() and events(log, "step")):
                assert process.poll() is None, process.stderr.read().decode()[-2000:]
                assert time.monotonic() < deadline, "no step was taken"
                time.sleep(0.2)
            yield process.pid
        finally:
            for pid in [*below(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.stderr.close()


def below(pid):
    """The processes that a process started, and those that they started."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{name}/stat").read_text()
            parents[int(name)] = int(status.rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def listening(pids):
    """{(program, address)} on which some processes accept connections in our network."""
    owners = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    owners[os.readlink(descriptor)] = pid
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and f"socket:[{words[9]}]" in owners:
                pid = owners[f"socket:[{words[9]}]"]
                name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
                found.add((" ".join(Path(w.decode()).name for w in name), address(words[1])))
    return found


def address(text):
    """The address of a line of /proc/net/tcp: 32-bit words in the order of this machine."""
    packed = bytes.fromhex(text.partition(":")[0])
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    ordered = b"".join(w[::-1] if sys.byteorder == "little" else w for w in words)
    found = ipaddress.ip_address(ordered)
    return getattr(found, "ipv4_mapped", None) or found


@pytest.mark.skipif(not start_unreachable.possible(), reason="this kernel lets us make no network")
@pytest.mark.parametrize(
    "how",
    [*TWO_DEVICES[1:3], pytest.param(TWO_DEVICES[3], marks=pytest.mark.ci), SERVERS],
    ids=lambda how: "-".join(how.values()),
)
def test_in_a_network_of_its_own_a_run_opens_no_port_to_others(how, tmp_path):
    # On a cluster the node's own name stands for an address, which is not in there.
    cluster = may_be_a_node(tmp_path)
    node = as_node(ELSEWHERE, tmp_path) if cluster else list
    log = tmp_path / "train.jsonl"
    with training(log, lambda it: node(start_unreachable.command(it)), **how) as pid:
        assert listening([pid, *below(pid)]) == set()
    hosts = {event["host"] for event in events(log, "run_start")}
    assert hosts == {NAME if cluster else socket.gethostname()}


# Not ours to change: TensorFlow's gRPC server, Horovod's rendezvous server and Open MPI listen on
# all interfaces and have no setting for it. docs/publish.md says so; where this changes, it must.
OPEN = {
    "mirrored": set(),
    "multiworker-local": {"python train.py"},
    "parameter_server-local": {"python train.py"},
    "horovod-horovodrun": {"python3 -m"},
    "horovod-mpirun": {"mpirun -np", "python train.py"},
}


@pytest.mark.parametrize("how", [*TWO_DEVICES, SERVERS], ids=lambda how: "-".join(how.values()))
def test_beside_loopback_only_the_frameworks_own_servers_listen(how, tmp_path):
    with training(tmp_path / "train.jsonl", **how) as pid:
        found = listening([pid, *below(pid)])
    beyond = {program for program, where in found if not where.is_loopback}
    assert beyond == OPEN["-".join(how.values())]
    if how["strategy"] == "mirrored":  # one process
        assert not found
