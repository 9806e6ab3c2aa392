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
from dlbench.common import phrases, plugins, tools
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

if STARTED.moves_results():
    raise WorkflowError(
        "dlbench: its programs look for results in results/ of the working directory, which "
        "pathvars, prefix and replace_prefix do not move: leave them out, or give the module "
        '`pathvars: results="results"`. To have results elsewhere make results a link '
        "(ln -s /scratch/me/mine results), or start Snakemake with --directory"
    )

# A start chooses the sentinels; its jobs must plan the same ones.
try:
    if STARTED.is_main:
        pass_on_interrupts()
        planning.check_folders(writes=not STARTED.is_dry_run)
except Error as error:
    raise WorkflowError(str(error)) from None
try:
    PLAN = planning.plan_of_start(config, STARTED.is_main)
except Error as error:
    raise WorkflowError(f"The config cannot be used:\n{error}") from None
except KeyboardInterrupt:
    raise WorkflowError("interrupted: nothing was started") from None
STUDY = PLAN.study
JOBS = jobs.Submitting(PLAN)


def set_variables():
    """Set the variables that programs and jobs of this start read from their environment.

    For programs of the cluster's profiles, their location. For the container directive, whose
    command-line arguments are the same for all rules, those of a plan. For all runs of a job, what
    its scheduler says of it, asked once. For jobs, the secrets of the config's commands: not where
    jobs are submitted, since schedulers may store that environment, and not by `envvars:`, whose
    values Snakemake writes into job scripts.
    """
    os.environ.update(DLBENCH_HOME=str(own_code.PROJECT), DLBENCH_PYTHON=sys.executable)
    os.environ.update(PLAN.directive_environment | schedulers.job_variables())
    if not (STARTED.submits and STARTED.is_main):
        os.environ.update(STUDY.commands.variables)


set_variables()
# Above the priority of every run: what runs need is made before the first of them is timed.
PREPARATION = 10**9
if STARTED.is_main and not STARTED.limits_bench:
    raise WorkflowError(
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
    search=phrases.any_of([*PLAN.searches]),
