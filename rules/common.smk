"""What the other files here share: the study with its runs, and how our commands begin.

Needs the config. Makes STUDY, PLAN (its runs, and what is to be done) and JOBS (what a scheduler is
asked for).
"""

import os
import shlex
import sys
from pathlib import Path

from dlbench import Error
from dlbench.cluster import cluster_job, submitting
from dlbench.plan import imported, plan, planning, records_list, replaced_tables
from dlbench.starting import recorded
from dlbench.study import trainer_environments


def escaped(text):
    """Text of a shell command in which Snakemake finds no variables."""
    return text.replace("{", "{{").replace("}", "}}")


def program(name, python="python", start=None):
    """The beginning of a shell command that starts a program of ours."""
    return f"{start or START}{python} {PROGRAMS}/{name}"


# Our shell commands begin with this: `python` in them is the one that runs Snakemake, or that of
# the rule's conda environment where Snakemake activates it. No shell.prefix, which is of all rules;
# Snakemake's own is said again, for where there is another: without it the exit code of what is
# piped to tee would be lost. Snakemake formats it.
STRICT = "set -euo pipefail; "
OUR_PYTHON = (
    f"export PATH={escaped(shlex.quote(str(Path(sys.executable).parent)))}:$PATH; "
)
START = STRICT if STARTED.uses_conda else STRICT + OUR_PYTHON
PROGRAMS = escaped(shlex.quote(str(own_code.project_path("workflow_scripts"))))

# A start chooses what it repeats of finished runs; its jobs must know the same runs.
try:
    if STARTED.is_main:
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
JOBS = submitting.Submitting(PLAN)
# For the program by which our profiles submit jobs: where it is, and of which start they are.
os.environ.update(DLBENCH_HOME=str(own_code.PROJECT), DLBENCH_PYTHON=sys.executable)
if PLAN.new_session:
    os.environ.update(DLBENCH_START=PLAN.new_session["id"])
# For the container directive, whose arguments are the same for all rules.
os.environ.update(PLAN.directive_environment)
if not (STARTED.submits and STARTED.is_main):
    # Command lines have numbers for them. Schedulers, which may keep the environment of what submits
    # jobs, get none: within a job the config is read again.
    os.environ.update(STUDY.commands.variables)
# Above that of every run: what runs need is made before the first of them is timed.
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
    search=PLAN.search_pattern,
