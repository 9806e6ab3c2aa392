"""What the other files here share, the study with its runs and what is to be done.

Needs the config. Makes STUDY, RUNS (by id) and what begins a start. What is Snakemake's own, and
so also of the rules of a workflow that uses this one as a module, stays as that has it.
"""

import functools
import inspect
import os
import shlex
import sys
from pathlib import Path

from snakemake.io import IOFile
from snakemake.iocontainers import AttributeGuard
from snakemake.jobs import Job
from snakemake.resources import Resource

from dlbench import Error
from dlbench.cluster import submitting
from dlbench.images import trainer_image
from dlbench.plan import plan, planning, replaced_tables, sentinels
from dlbench.starting import recorded
from dlbench.study import trainer_environments


def as_it_is(text):
    """Text of a shell command in which Snakemake finds no variables."""
    return text.replace("{", "{{").replace("}", "}}")


def program(name, python="python"):
    """The beginning of a shell command that starts a program of ours."""
    return f"{START}{python} {PROGRAMS}/{name}"


# Our shell commands begin with this: `python` in them is the one that runs Snakemake. No
# shell.prefix, which is of all rules; Snakemake's own is said again, for where there is another:
# without it the exit code of what is piped to tee would be lost. Snakemake formats it.
START = (
    "set -euo pipefail; export PATH="
    + as_it_is(shlex.quote(str(Path(sys.executable).parent)))
    + ":$PATH; "
)
PROGRAMS = as_it_is(shlex.quote(str(own_code.here("workflow_scripts"))))

# A start chooses what it repeats of finished runs; its jobs must know the same runs.
BEGINS = workflow.exec_mode.name == "DEFAULT"
try:
    if BEGINS:
        planning.check_folders(writes=not workflow.dryrun)
except Error as error:
    sys.exit(str(error))
try:
    PLAN = planning.plan_of_start(
        config, sentinels.choose if BEGINS else sentinels.chosen_of_session
    )
except Error as error:
    sys.exit(f"The config cannot be used:\n{error}")
except KeyboardInterrupt:
    sys.exit("interrupted: nothing was started")
STUDY, RUNS = PLAN.study, PLAN.runs
JOBS = submitting.Submitting(PLAN)
# Whether runs are jobs of a scheduler, whose number at once is then given. Elsewhere nothing asks
# for what such a job needs, and Snakemake would spend more time on that than on all else of a run.
SUBMITS = not BEGINS or workflow.resource_settings.nodes is not None
# For the container directive, whose arguments are the same for all rules.
os.environ.update(PLAN.directive_environment)
if not (SUBMITS and BEGINS):
    # Command lines have numbers for them. Schedulers, which may keep the environment of what submits
    # jobs, get none: within a job the config is read again.
    os.environ.update(STUDY.commands.variables)
# One timed run at a time, also where the profile does not say so.
if "bench" not in workflow.global_resources:
    workflow.register_resource("bench", 1)
# Above that of every run: what runs need is made before the first of them is timed.
PREPARATION = len(RUNS) + 1
# What the searches for largest batches make, as long as there are some to be done.
TO_FIND = [str(search.output) for search, _ in PLAN.searches.values()]
# Filled as rules are read.
OUR_RULES = workflow.modifier.rules


def asked_of_each_run(function):
    """A function that carries its signature.

    Snakemake looks at the signature of a rule's function two or three times for each run, which
    costs more than most of them do.
    """
    function.__signature__ = inspect.signature(function)
    return function


asked_of_each_run(Resource.evaluate)  # Snakemake's own, for each resource of a run
# Each list of files, wildcards, parameters of a job has two of these, equal for all jobs.
AttributeGuard.__new__ = staticmethod(
    functools.cache(lambda kind, *name: object.__new__(kind))
)


def once(function):
    """A function that acts at its first call in a start.

    Where a workflow around us takes rules singly (by `use`), these files are read again for each of
    them; the plan stays the same.
    """

    @functools.cache
    def act():
        if function.__name__ not in PLAN.begun:
            PLAN.begun.add(function.__name__)
            or_end(function)

    return act


def or_end(function):
    """Call a function; where files cannot be read or written the start ends with the message.

    Snakemake would show the place in these files, too.
    """
    try:
        function()
    except (Error, OSError) as error:
        sys.exit(f"Nothing was started:\n{error}")


def our_rule(name):
    """A rule of these files, whatever a workflow around us calls it."""
    return workflow.get_rule(getattr(rules, name).rule.name)


@functools.cache
def let_digests_decide():
    """Have records and manifests say what is made again, by digests of what it was made from.

    Snakemake's memory of earlier inputs and code does not travel with a copy of the results.
    """
    workflow.dag.forcefiles |= PLAN.forced
    for question in ("code_changed", "input_changed", "software_stack_changed"):
        spare_our_rules(workflow.persistence, question)
    ask_for_our_outputs_in_turn()
    if BEGINS and not workflow.dryrun:
        or_end(lambda: trainer_environments.keep_choices(PLAN.with_tries))
        # For rules, which name the file.
        or_end(lambda: PLAN.config_file(keep=True))
    take_part()


def spare_our_rules(memory, question):
    """Have Snakemake's memory say of jobs of ours that nothing has changed."""
    ask = getattr(memory, question)

    def answer(job, file=None):
        is_ours = job.rule in OUR_RULES
        if is_ours:
            return () if file is None else False
        return ask(job, file=file)

    setattr(memory, question, answer)


def ask_for_our_outputs_in_turn():
    """Have Snakemake ask for the age of our outputs one after the other.

    Its own way makes tasks for the outputs of all jobs before it waits for the first: 30 MB for
    10 000 runs.
    """
    ask = Job.output_mintime.fget

    async def answer(job):
        is_ours = job.rule in OUR_RULES
        if not is_ours or job.benchmark:
            return await ask(job)
        there = [file for file in job.output if await file.exists()]
        times = [(await file.mtime()).local_or_storage() for file in there]
        return min(times, default=None)

    Job.output_mintime = property(answer)


@once
def take_part():
    """Do what is to be done at the start and at the end, beside what a workflow around us does."""
    # Before Snakemake deletes them: an output of a job that is to come.
    add_to("_onstart", PLAN.put_logs_aside)
    add_to("_onerror", end_in_failure)
    add_to("_onsuccess", end_well)


def add_to(hook, ours):
    """Have a hook of Snakemake do what is ours first, then what it would do."""
    theirs = getattr(workflow, hook)
    setattr(workflow, hook, lambda log: (ours(), theirs(log)))


@functools.cache
def let_records_decide():
    """Have records (dlbench/records/run_record.py) say what is trained again, and begin that."""
    let_digests_decide()
    if BEGINS:
        ask_for_forced_runs()
    if PLAN.pending:
        # Snakemake makes what is missing only for a job that is to be done itself.
        workflow.dag.forcefiles.add(plan.RECORDS)
    begin()


def ask_for_forced_runs():
    """Have runs trained that the command line names (-R, -f) or that it has with all else (-F)."""
    settings = workflow.dag_settings
    named = {*settings.forcerun, *(settings.targets if settings.forcetargets else ())}
    if settings.forceall or our_rule("train").name in named:
        PLAN.train_again(RUNS)
    elif named:
        PLAN.train_again(run_id for run_id in RUNS if named & {*PLAN.files(run_id)})


@once
def begin():
    """Say what is to be done, and begin it."""
    if any(Path(".snakemake/incomplete").glob("*")):
        # A job that outlived its workflow has finished what Snakemake took for begun.
        for path in PLAN.standing_files:
            workflow.persistence.cleanup_metadata(IOFile(path, our_rule("train")))
    if BEGINS:
        lines = [*PLAN.why, *replaced_tables.lines(STUDY.name)]
        print(*lines, sep="\n", file=sys.stderr)
    if workflow.dryrun:
        print(JOBS.cost, file=sys.stderr)
        shown = workflow.output_settings
        if not (shown.printshellcmds or shown.log_handler_settings):
            # Snakemake would put the command of each run together three times, and show none.
            our_rule("train").shellcmd = ""
    elif BEGINS:
        trainer_image.forget_failures(PLAN.forced)
        PLAN.keep_code()
        if not any(plan.LOCKS.glob("*")):  # of a workflow at work
            recorded.forget_standing()
        PLAN.begin_session()


def end_well():
    """Settle what jobs recorded, and go on where that gives further runs."""
    if BEGINS:
        recorded.settle()
        go_on_with_found_batches()


def end_in_failure():
    """After Ctrl-C and failures; within a job, where Snakemake is started again, not at all."""
    if BEGINS:
        recorded.settle()
        status = own_code.here("workflow_scripts/status.py")
        print(plan.WHAT_STAYS.format(status=status), file=sys.stderr)


@once
def meet_cluster():
    """Before the first job is submitted, check that the scheduler would accept all."""
    if workflow.local_exec or workflow.exec_mode.name != "DEFAULT":
        return
    scheduler = submitting.scheduler(
        workflow.executor_plugin.name, workflow.executor_settings
    )
    submitting.mend(
        scheduler,
        sys.modules[workflow.executor_plugin.executor.__module__],
        workflow.remote_execution_settings.seconds_between_status_checks,
        workflow.executor_settings,
    )
    try:
        cancelled = JOBS.check_cluster(
            scheduler,
            lambda rule, name: our_rule(rule).resources.get(name).raw,
        )
    except Error as error:
        sys.exit(f"Nothing was submitted:\n{error}")
    if cancelled:
        # What they left is not what the plan was made from.
        print(
            f"cancelled jobs that an earlier start left behind: {', '.join(cancelled)}; "
            "starting anew",
            file=sys.stderr,
            flush=True,
        )
        os.execv(sys.executable, [sys.executable, "-m", "snakemake", *sys.argv[1:]])


wildcard_constraints:
    run_id="[a-z0-9_.-]+",
    dataset="[a-z0-9_]+",
    figure="[a-z0-9_]+",
    machine="[A-Za-z0-9_.-]+",
    baseline="[A-Za-z0-9_.-]+",
    environment="[A-Za-z0-9_.-]+",
    image="[A-Za-z0-9_.-]+",
    search=PLAN.searching,
