"""The study, the plan and the beginning of shell commands, which the other rule files share.

Needs the config. Makes STUDY, PLAN (its runs, and what is to be done) and JOBS (the jobs of a
scheduler).
"""

import os
import shlex
import sys
from pathlib import Path

from dlbench import Error, schedulers
from dlbench.cluster import cluster_job, jobs
from dlbench.common import name_patterns, plugins, tools
from dlbench.data import stores
from dlbench.images import trainer_image
from dlbench.plan import plan, planning, run_command
from dlbench.plan.snakemake_start import pass_on_interrupts
from dlbench.records import judgement
from dlbench.starting import fates
from dlbench.study import trainer_environments


def escaped(text):
    """Text of a shell command with braces escaped, so that Snakemake formats nothing in it."""
    return text.replace("{", "{{").replace("}", "}}")


def program(name, python="python", start=None):
    """The beginning of a shell command that starts one of dlbench's programs.

    "dlbench report" is a command of dlbench, started without the need that it is installed.
    """
    return f"{start or START}{python} {PROGRAMS}/{name}"


# All shell commands start with this. `python` is the one that runs Snakemake, or that of the rule's
# conda environment if Snakemake activates it. shell.prefix() is not used, since it would change the
# rules of other workflows too. `set -euo pipefail` is repeated in case another prefix replaced it:
# without it the exit code of commands that are piped to tee would be lost.
STRICT = "set -euo pipefail; "
OUR_PYTHON = (
    f"export PATH={escaped(shlex.quote(str(Path(sys.executable).parent)))}:$PATH; "
)
START = STRICT if STARTED.uses_conda else STRICT + OUR_PYTHON
PROGRAMS = escaped(shlex.quote(str(own_code.project_path("workflow_scripts"))))

# A start chooses the sentinels; its jobs must plan the same ones.
try:
    if STARTED.is_main:
        pass_on_interrupts()
        planning.check_folders(writes=not STARTED.is_dry_run)
except Error as error:
    sys.exit(str(error))
try:
    PLAN = planning.plan_of_start(config, STARTED.is_main)
except Error as error:
    sys.exit(f"The config cannot be used:\n{error}")
except KeyboardInterrupt:
    sys.exit("interrupted: nothing was started")
STUDY = PLAN.study
JOBS = jobs.Submitting(PLAN)
# The location of cluster_job.py, by which the profiles submit jobs.
os.environ.update(DLBENCH_HOME=str(own_code.PROJECT), DLBENCH_PYTHON=sys.executable)
# For the container directive, whose command-line arguments are the same for all rules.
os.environ.update(PLAN.directive_environment)
# Once for all runs of a job.
os.environ.update(schedulers.job_variables())
if not (STARTED.submits and STARTED.is_main):
    # The secrets of commands, for which command lines have numbers. They are not set where jobs are
    # submitted, since schedulers may store that environment: each job reads the config again.
    os.environ.update(STUDY.commands.variables)
# Above the priority of every run: what runs need is made before the first of them is timed.
PREPARATION = 10**9
if STARTED.is_main and not STARTED.limits_bench:
    sys.exit(
        "dlbench: nothing keeps runs from being timed beside one another: start Snakemake with "
        "--resources bench=1, or with --workflow-profile profiles/default, which says so"
    )


wildcard_constraints:
    run_id="[a-z0-9_.-]+",
    dataset="[a-z0-9_]+",
    figure="[a-z0-9_]+",
    machine="[A-Za-z0-9_.-]+",
    baseline="[A-Za-z0-9_.-]+",
    environment="[A-Za-z0-9_.-]+",
    image="[A-Za-z0-9_.-]+",
    search=name_patterns.any_of([*PLAN.searches]),
