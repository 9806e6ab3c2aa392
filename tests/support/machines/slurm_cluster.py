"""A real Slurm on this machine, by scripts in the folder that DLBENCH_TEST_EQUIPMENT names."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.campaigns.campaign import environment
from support.machines.paths import EQUIPMENT, alone
from support.studies.site_facts import SITE

NODES = ("n1", "n2", "n3")
SCRIPTS = EQUIPMENT / "slurm"
# What a site would write into site.yaml: see the scripts' slurm.conf.in.
FACTS = SITE | {
    "name": "three nodes",
    "cores_per_node": 8,
    "nodes": 3,
    "memory_mb_per_node": 8000,
    "interconnect": "loopback",
    "job": SITE["job"] | {"memory_mb_per_device": 1500},
}


class Slurm:
    """A running Slurm of three node daemons with accounting; partitions cpu, gpu and low."""

    def __init__(self, folder):
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command):
        """Run one of Slurm's programs. Returns its output."""
        return subprocess.run(
            command,
            env=environment() | self.variables,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        ).stdout

    def queue(self):
        return self.run("squeue", "--noheader", "--format=%i").split()

    def jobs(self):
        """The ids of all jobs that there ever were."""
        return set(self.run("sacct", "-X", "--noheader", "--format=JobID").split())

    def place(self, node, cores):
        """Bind a node's daemon, and so its later jobs, to some cores."""
        pid = (self.folder / "run" / f"slurmd.{node}.pid").read_text().strip()
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def down(self):
        """Stop all daemons, and remove the links by which commands find them."""
        subprocess.run(["bash", SCRIPTS / "slurm_down.sh", self.folder], check=False)
        for link in Path("/etc/slurm").glob("*.conf"):
            if link.is_symlink() and link.readlink().is_relative_to(self.folder):
                link.unlink()

    def restart_controller(self):
        self.stop("slurmctld")
        self.run("slurmctld", "-f", self.variables["SLURM_CONF"])

    def stop(self, daemon):
        pid = (self.folder / "run" / f"{daemon}.pid").read_text().strip()
        subprocess.run(["kill", pid], check=True)
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), 30)

    def start_accounting(self):
        with (self.folder / "log" / "slurmdbd.out").open("a") as log:
            subprocess.Popen(
                ["slurmdbd", "-D"],
                env=environment() | self.variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def wait_for(condition, seconds):
    """Wait until a condition is true. Returns its value."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition}"
        time.sleep(0.2)
    return answer


def skip_if_no_job_can_start():
    if " " in sys.executable:
        pytest.skip(f"no job is started by {sys.executable}: docs/troubleshooting.md says why")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    skip_if_no_job_can_start()
    if not (SCRIPTS / "slurm_up.sh").is_file():
        pytest.skip(
            f"no {SCRIPTS}/slurm_up.sh: name a folder that has it in DLBENCH_TEST_EQUIPMENT"
        )
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("Slurm is installed and started as root on Debian only")
    folder = tmp_path_factory.mktemp("slurm")
    with alone("slurm"):
        resolve_nodes()
        with alone("apt"):
            up = subprocess.run(
                ["bash", SCRIPTS / "slurm_up.sh", folder, "acct"],
                capture_output=True,
                text=True,
                check=False,
            )
        assert up.returncode == 0, up.stdout + up.stderr
        yield Slurm(folder)
        Slurm(folder).down()


def resolve_nodes():
    """Let the names of the node daemons resolve to this machine."""
    hosts = Path("/etc/hosts")
    missing = [n for n in NODES if n not in hosts.read_text().split()]
    if missing:
        with hosts.open("a") as file:
            file.write(f"127.0.0.1 {' '.join(missing)}\n")
