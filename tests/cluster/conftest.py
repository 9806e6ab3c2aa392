"""Real schedulers on this machine, by scripts in the folder that DLBENCH_TEST_EQUIPMENT names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.machines.paths import EQUIPMENT, alone
from support.machines.slurm_cluster import skip_if_no_job_can_start
from support.machines.slurm_cluster import slurm as slurm
from support.runs.accounted import accounts_add_up as accounts_add_up


@pytest.fixture(scope="session", autouse=True)
def jobs_can_start():
    skip_if_no_job_can_start()


@pytest.fixture(scope="session")
def grid_engine():
    """A Grid Engine of one host, queue all.q, parallel environment smp, which our commands use."""
    scripts = EQUIPMENT / "gridengine"
    if not (scripts / "sge_up.sh").is_file():
        pytest.skip(f"no {scripts}/sge_up.sh: name a folder that has it in DLBENCH_TEST_EQUIPMENT")
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("Grid Engine is installed and started as root on Debian only")
    with alone("apt"):
        up = subprocess.run(
            ["bash", scripts / "sge_up.sh"], capture_output=True, text=True, check=False
        )
    assert up.returncode == 0, up.stdout + up.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGE_ROOT", "/var/lib/gridengine")
        patch.setenv("SGE_CELL", "default")
        # The profile's programs are started by the python on the path.
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield
        subprocess.run(["qdel", "-u", "root"], check=False)
        subprocess.run(["bash", scripts / "sge_down.sh"], check=False)
