"""What PBS and LSF are asked for by the profiles that are shipped.

Programs of their names take the place of the schedulers, which do not run here: they note what
they are given and run the job on this machine.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.campaigns.campaign import environment

REPOSITORY = Path(__file__).parents[2]
SNAKEFILE = """
import sys

sys.path.insert(0, "workflow_scripts")
from dlbench.cluster import jobs

JOB = jobs.Job(
    nodes=2, tasks=8, cores_per_task=4, memory_mb=64000, gpus_per_node=4, time_min=90,
    exclusive=True, gpu_request="gpu", extra="-m fast",
)


rule train:
    output:
        "out.txt",
    resources:
        **jobs.resources(JOB),
    shell:
        "{command}"
"""
# The job's end is seen in what it wrote, since this server has forgotten it.
QSUB = """#!/bin/sh
printf '%s\\n' "$@" >{folder}/asked
for script; do :; done
(PBS_JOBID=7.pbs; export PBS_JOBID; cd /; exec sh "$script") >{folder}/log 2>&1 </dev/null &
echo 7.pbs
"""
QSTAT = """#!/bin/sh
case "$*" in
-B*) echo "    default_queue = workq" ;;
-Q*) echo "Queue: workq"; echo "    queue_type = Execution" ;;
*) echo "qstat: Unknown Job Id" >&2; exit 153 ;;
esac
"""
BSUB = """#!/bin/sh
printf '%s\\n' "$@" >{folder}/asked
for script; do :; done
(LSB_JOBID=7; export LSB_JOBID; exec sh "$script") >{folder}/log 2>&1 </dev/null &
echo "Job <7> is submitted to default queue <normal>."
"""


@pytest.fixture
def place(tmp_path):
    """A workflow of one job, with our profiles, and a folder for the scheduler's programs."""
    for name in ("profiles", "workflow_scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(place, name, script):
    path = place / "bin" / name
    path.write_text(script)
    path.chmod(0o755)


def snakemake(place, profile, command="echo done >{output}"):
    (place / "Snakefile").write_text(SNAKEFILE.replace("{command}", command))
    path = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.defpath])
    home = {"PATH": path, "DLBENCH_HOME": str(place), "DLBENCH_PYTHON": sys.executable}
    waits = ("--seconds-between-status-checks", "1", "--latency-wait", "1")
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--profile", f"profiles/{profile}", *waits],
        cwd=place,
        env=environment() | home,
        text=True,
        check=False,
        timeout=200,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def asked(place):
    return (place / "asked").read_text().splitlines()


def test_pbs_is_asked_for_what_a_run_needs_and_the_job_says_how_it_ended(place):
    program(place, "qsub", QSUB.format(folder=place))
    program(place, "qstat", QSTAT)
    program(place, "pbsnodes", "#!/bin/sh\n")
    program(place, "qdel", f'#!/bin/sh\necho "$*" >>{place}/deleted\n')
    finished = snakemake(place, "pbs")
    assert finished.returncode == 0, finished.stdout + (place / "log").read_text()
    *arguments, script = asked(place)
    assert Path(script).name.startswith("snakejob.train.")
    assert arguments == shlex.split(
        "-V -S /bin/sh -r n -j oe -o results/logs/cluster/ -N dlbench.train "
        "-l select=2:ncpus=16:mpiprocs=4:mem=64000mb:ngpus=4 -l place=scatter:excl "
        "-l walltime=1:30:00 -m fast"
    )
    (place / "out.txt").unlink()
    failed = snakemake(place, "pbs", command="exit 3 # {output}")
    assert failed.returncode != 0, failed.stdout
    assert "returned non-zero exit status 3" in (place / "log").read_text()
    assert not (place / "deleted").exists()


def test_lsf_is_asked_for_what_a_run_needs(place):
    program(place, "bsub", BSUB.format(folder=place))
    program(place, "bjobs", "#!/bin/sh\necho '7|RUN|-|-'\n")
    finished = snakemake(place, "lsf")
    assert finished.returncode == 0, finished.stdout + (place / "log").read_text()
    *arguments, shell, script = asked(place)
    assert shell == "sh" and Path(script).name.startswith("snakejob.train.")
    assert arguments == shlex.split(
        "-J dlbench.train -o results/logs/cluster/%J.log -W 90 -rn -n 32 -R span[ptile=16] "
        "-R rusage[mem=4000] -gpu num=4/host -x -m fast"
    )
