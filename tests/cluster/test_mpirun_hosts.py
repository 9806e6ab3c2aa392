"""mpirun over two hosts of which it learns from a scheduler's file alone.

The hosts are network namespaces of this machine, each with an address and a host name of its own.
What takes the place of PBS is its file of nodes and a program for its remote shell, which enters
the other host as the real one does.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = REPOSITORY / "envs/train/.venv"
HOSTS = {"dlbench-n1": "10.231.77.1", "dlbench-n2": "10.231.77.2"}
WAIT = 'hostname "$0"; mount --bind "$1" /etc/hosts; ip link set lo up; echo up; exec sleep 600'
REMOTE_SHELL = """#!/bin/sh
host=$1; shift
echo "$host" >>{folder}/started
exec nsenter --target "$(cat {folder}/$host)" --net --uts --mount sh -c "$*"
"""


@pytest.fixture
def hosts(tmp_path):
    """A folder with the process ids of two hosts and, in bin, the remote shell between them."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        pytest.skip("only root may make network namespaces, with ip of iproute2")
    names = tmp_path / "hosts"
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {n}\n" for n, ip in HOSTS.items()))
    (tmp_path / "bin").mkdir()
    shell = tmp_path / "bin" / "pbs_tmrsh"
    shell.write_text(REMOTE_SHELL.format(folder=tmp_path))
    shell.chmod(0o755)
    with contextlib.ExitStack() as stack:
        for name in HOSTS:
            command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", WAIT, name, str(names)]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            if process.stdout.readline() != "up\n":
                process.kill()
                pytest.skip(f"no network namespaces here: {process.stderr.read()}")
            (tmp_path / name).write_text(str(process.pid))
        first, second = (on(tmp_path, name)[2] for name in HOSTS)
        cable = ["ip", "link", "add", "eth0", "netns", first, "type", "veth"]
        subprocess.run([*cable, "peer", "name", "eth0", "netns", second], check=True)
        for name, address in HOSTS.items():
            for arguments in (["addr", "add", f"{address}/24"], ["link", "set", "up"]):
                subprocess.run([*on(tmp_path, name), "ip", *arguments, "dev", "eth0"], check=True)
        yield tmp_path


def on(folder, host):
    """What is put before a command for it to run on a host."""
    pid = (folder / host).read_text()
    return ["nsenter", "--target", pid, "--net", "--uts", "--mount", f"--wd={REPOSITORY}"]


def test_horovod_trains_over_the_nodes_of_a_job_of_pbs(hosts, monkeypatch):
    nodes, log = hosts / "nodes", hosts / "train.jsonl"
    nodes.write_text("".join(f"{name}\n" * 2 for name in HOSTS))
    monkeypatch.setenv("PBS_JOBID", "7.pbs")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    monkeypatch.setenv("PATH", f"{hosts}/bin:{os.environ['PATH']}")
    run = Run(
        model="lenet5", dataset="synthetic", batch_per_device=8, steps=4, warmup_steps=1,
        nodes=2, strategy="horovod", launcher="mpirun",
    )  # fmt: skip
    trainer = [str(ENVIRONMENT / "bin/python"), str(REPOSITORY / "workflow_scripts/train.py")]
    trainer += [*run.flags(), "--log", str(log)]
    command = plugins.load("launchers", "mpirun").command(run, trainer, ENVIRONMENT)
    finished = subprocess.run(
        [*on(hosts, "dlbench-n1"), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = [list(event_log.read(path)) for path in event_log.rank_paths(log)]
    assert [start(events)["host"] for events in logs] == list(HOSTS)
    assert len({tuple(events[-1]["weights_sha256"]) for events in logs}) == 1
    assert (hosts / "started").read_text() == "dlbench-n2\n"


def start(events):
    return next(event for event in events if event["event"] == "run_start")
