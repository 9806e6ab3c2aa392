"""The functions that rules refer to: what they need, and the words of their commands.

Needs common.smk: the plan.
"""

import functools
import json
import os
import shlex
import sys

from dlbench.plan import baselines, plan, run_command


def once(function):
    """A function that acts at its first call for a plan.

    Where a workflow around us takes rules singly (by `use`), these files are read again for each of
    them; the plan stays the same.
    """

    def act():
        if function.__name__ not in PLAN.reported:
            PLAN.reported.add(function.__name__)
            function()

    return act


@functools.cache
def scheduler():
    """The scheduler that gets the jobs of this start, if any."""
    return submitting.scheduler(STARTED.executor, STARTED.submit_command)


@once
def report_plan():
    """Print what is to be done, and why; as the first of the functions of rules that is called."""
    train_forced_runs()
    if STARTED.is_main:
        lines = [*PLAN.why, *replaced_tables.lines(STUDY.name)]
        print(*lines, sep="\n", file=sys.stderr)
    if STARTED.is_dry_run and not PLAN.searches:
        print(JOBS.cost, file=sys.stderr)


def train_forced_runs():
    """Have runs trained again that the command line names, or that it has with all else."""
    is_all = STARTED.forces_all or STARTED.forces_rule(rules.train)
    PLAN.train_again(
        run_id
        for run_id in (PLAN.runs if is_all or STARTED.forced else ())
        if is_all or STARTED.forced & {*PLAN.files(run_id)}
    )


@once
def check_cluster():
    """Before the first job is submitted, check that the scheduler would accept all."""
    if not STARTED.is_main or STARTED.executor is None:
        return
    try:
        JOBS.check_cluster(scheduler(), profile_value)
    except Error as error:
        sys.exit(f"Nothing was submitted:\n{error}")


def profile_value(rule, resource):
    """The value that the profile gives a resource of a rule of ours."""
    return STARTED.resource(getattr(rules, rule), resource)


def session_files(wildcards):
    """The file of the session that starts, for which its runs wait; none where nothing is to do."""
    report_plan()
    return PLAN.session_files.file if PLAN.session_files.starts else []


def session_done(wildcards):
    """What says that all runs of the last session have their records."""
    report_plan()
    check_cluster()
    return PLAN.session_files.done


def remade(template):
    """An input function: the list of what is made again that has a file, or none."""

    def lists(wildcards):
        report_plan()
        return PLAN.session_files.remade_lists(template.format(**wildcards))

    return lists


def list_of_remade(wildcards):
    """The list of what is made again in this start, where there is something."""
    report_plan()
    return PLAN.session_files.remade_list


def search_inputs(wildcards):
    """What the search for a largest batch needs; nothing where it is skipped."""
    report_plan()
    check_cluster()
    search, why_not = PLAN.searches[wildcards.search]
    return [] if why_not else plan.needs(search.run)


def searched_run(wildcards):
    """The run that a search tries with the least batch."""
    return PLAN.searches[wildcards.search][0].run


def find_batch_arguments(wildcards, output):
    """What follows find_batch.py and its files, quoted for the shell."""
    memory_mb = STUDY.site["memory_mb_per_node"]
    if STARTED.submits:
        memory_mb = JOBS.memory_mb(wildcards.search)
    return shlex.join(
        run_command.find_batch_arguments(PLAN, wildcards.search, memory_mb)
    )


def training_inputs(wildcards):
    """What a run waits for.

    Of one that is done: what it waited for when it was trained, however new that is now.
    """
    report_plan()
    check_cluster()
    if wildcards.run_id in PLAN.pending:
        return PLAN.training_inputs(wildcards.run_id)
    return list(map(ancient, PLAN.inputs_of_trained(wildcards.run_id)))


def image_to_enter(wildcards):
    """Nothing, once the image of a run was prepared that Snakemake enters.

    What came of that decides whether it does; its file is among `training_inputs`.
    """
    if STARTED.is_main and PLAN.is_by_directive(wildcards.run_id):
        checkpoints.prepare_image.get(**PLAN.form(wildcards.run_id))
    return []


def run_records(wildcards):
    """The records that are to be made; all of them for those who ask for what is done, too.

    To look at ten thousand jobs that are done takes Snakemake several times what their records
    take us.
    """
    for search_id in PLAN.searches:
        checkpoints.find_batch.get(search=search_id)
    if PLAN.searches:
        plan_found_batches()
    run_ids = PLAN.runs if STARTED.asks_for_all else PLAN.pending
    return [f"results/runs/{run_id}/run.json" for run_id in run_ids]


def plan_found_batches():
    """Plan the runs whose batches were found in this start."""
    try:
        planning.plan_found_batches(config, PLAN)
    except Error as error:
        sys.exit(f"The config cannot be used:\n{error}")
    JOBS.forget()
    os.environ.update(PLAN.directive_environment)
    report_plan()
    check_cluster()


def environments_and_images(wildcards):
    """What says that they are there."""
    return PLAN.environments


def start_run_arguments(wildcards, output):
    """What follows start_run.py and its files, quoted for the shell."""
    return run_command.StartRunArguments(PLAN, wildcards.run_id)


def directive_image(wildcards):
    """What the container directive enters for a run."""
    return PLAN.directive_image(wildcards.run_id)


def training_priority(wildcards):
    """Higher for runs that come earlier in the seeded order."""
    return PLAN.priority(wildcards.run_id)


def attempt_of_job(wildcards, attempt):
    """How often a run was tried in this start, this time included."""
    return attempt


def prepare_image_arguments(image, form):
    """Flags of prepare_image.py, quoted for the shell."""
    return shlex.join(run_command.prepare_image_arguments(PLAN, image, form))


def measured_baselines(wildcards):
    """The baselines of the study on this machine."""
    check_cluster()
    return baselines.files(PLAN, STARTED.submits)


def baseline_inputs(wildcards):
    """What a baseline needs."""
    return baselines.inputs(PLAN, wildcards.baseline)


def baseline_run(wildcards):
    """A run that would be started as a baseline is."""
    return baselines.find(PLAN, wildcards.baseline).run


def baseline_arguments(wildcards, output):
    """What follows start_baseline.py and its files, quoted for the shell."""
    return baselines.arguments(PLAN, wildcards.baseline, str(output))


def figure_tables(wildcards):
    """The tables that a figure is drawn from."""
    with_baselines = baselines.for_figure(wildcards.figure, STUDY.figures)
    alone = baselines.is_alone(wildcards.figure)
    return [*with_baselines, *(() if alone else rules.collect_runs.output)]


def bundle(wildcards):
    """The job that a run shares with others like it."""
    return JOBS.bundle(wildcards.run_id)


def records_of_bundle(wildcards):
    """The records of the runs that share a job."""
    return [
        f"results/runs/{run_id}/run.json" for run_id in JOBS.bundled(wildcards.bundle)
    ]


def ends_of_bundles(wildcards):
    """What joins the runs of each bundle into one job; none where nothing is submitted."""
    if not (STARTED.is_main and STARTED.submits and PLAN.session):
        return []
    session_id = PLAN.session["id"]
    return [f"results/sessions/{session_id}.{name}.done" for name in JOBS.bundles]
