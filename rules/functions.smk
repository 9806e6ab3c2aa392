"""The functions of rules: inputs, params and resources.

Needs common.smk: the plan.
"""

import contextlib
import functools
import json
import shlex
import sys

from dlbench.plan import baselines, plan, run_command


def once(function):
    """A decorator: the function runs at its first call for a plan only.

    If another workflow takes single rules (by `use rule`), Snakemake reads these files again for
    each of them; the plan stays the same.
    """

    def act():
        if function.__name__ not in PLAN.reported:
            PLAN.reported.add(function.__name__)
            function()

    return act


@functools.cache
def scheduler():
    """The scheduler to which this start submits jobs, if any."""
    return jobs.scheduler(STARTED.executor, STARTED.executor_settings)


@functools.cache
def leftover_jobs():
    """The flags with the jobs of an earlier start: called before this one submits the first."""
    found = schedulers.runs_of_jobs(scheduler(), Path()) if scheduler() else ()
    return ["--scheduler", scheduler(), "--leftover-jobs", *found] if found else []


def cancel_open_jobs():
    """Cancel all jobs of this folder; the next start waits for their ends."""
    with contextlib.suppress(Error):
        job_ids = schedulers.runs_of_jobs(scheduler(), Path())
        cluster_job.cancel_jobs(scheduler(), job_ids, timeout_s=0)


@once
def report_plan():
    """Print what is to be done, and why. The first function of a rule to be called does this."""
    train_forced_runs()
    if STARTED.is_main:
        lines = [*PLAN.summary_lines, *plan.replaced_tables(STUDY.name)]
        # In one piece, since Snakemake's logger writes from a thread of its own.
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    if STARTED.is_dry_run and not PLAN.searches:
        sys.stderr.write(f"{JOBS.cost}\n")


def train_forced_runs():
    """Have runs trained again that --forcerun, --force or --forceall asks for."""
    is_all = STARTED.forces_all or STARTED.forces_rule(rules.train)
    PLAN.train_again(
        run_id
        for run_id in (PLAN.runs if is_all or STARTED.forced else ())
        if is_all or STARTED.forced & {*PLAN.files(run_id)}
    )


@once
def check_cluster():
    """Check that the scheduler would accept all jobs, before the first is submitted."""
    if not STARTED.is_main or STARTED.executor is None:
        return
    try:
        JOBS.check_cluster(
            scheduler(), profile_value, STARTED.executor_settings, baselines_join()
        )
    except Error as error:
        raise WorkflowError(f"Nothing was submitted:\n{error}") from None
    leftover_jobs()


def baselines_join():
    """Whether baselines share the jobs of runs on their nodes: if both are asked for.

    Snakemake refuses a group whose jobs have different strings as resources, as partitions that a
    profile sets for a rule.
    """
    of_figures = (baselines.for_figure(name, STUDY.figures) for name in STUDY.figures)
    asked = "baselines" in STARTED.targets or any(of_figures)
    return (
        asked
        and "all" in STARTED.targets
        and STARTED.same_strings(rules.train, rules.measure_baseline)
    )


def profile_value(rule, resource):
    """The value that the profile gives a resource of one of dlbench's rules."""
    return STARTED.resource(getattr(rules, rule), resource)


def session_files(wildcards):
    """[The file of the session], if this start begins one, else []: all runs wait for it."""
    report_plan()
    return PLAN.session_files.file if PLAN.session_files.starts else []


def session_done(wildcards):
    """[The file that exists once all runs of the last session have records]."""
    report_plan()
    check_cluster()
    return PLAN.session_files.done


def remade(template):
    """An input function: [the list of remade files that has a path], or []."""

    def lists(wildcards):
        report_plan()
        return PLAN.session_files.remade_lists(template.format(**wildcards))

    return lists


def merged_config(wildcards):
    """The file of the merged config; a dry run does not write it."""
    return PLAN.config_file(write=not STARTED.is_dry_run)


def executed(program, *named):
    """An input function: [the files that a program executes]."""
    return lambda wildcards: PLAN.code(program, *named)


def dataset_folder(wildcards, output):
    """The flag of programs that read the file of a dataset: the user's folder of such files."""
    return shlex.join(
        [f"--dataset-folder={STUDY.dataset_folder}"] * bool(STUDY.dataset_folder)
    )


def list_of_remade(wildcards):
    """[The list of files that this start makes again], or []."""
    report_plan()
    return PLAN.session_files.remade_list


def search_inputs(wildcards):
    """The inputs of the search for a largest batch; none if it is skipped."""
    report_plan()
    check_cluster()
    search, why_not = PLAN.searches[wildcards.search]
    return [] if why_not else plan.inputs_of_run(search.run)


def find_batch_arguments(wildcards, output):
    """The arguments of dlbench find-batch after its files, quoted for the shell."""
    memory_mb = STUDY.site["memory_mb_per_node"]
    if STARTED.submits:
        memory_mb = JOBS.memory_mb(wildcards.search)
    return shlex.join(
        run_command.find_batch_arguments(PLAN, wildcards.search, memory_mb)
    )


def training_inputs(wildcards):
    """The inputs of a run.

    A finished run has the inputs with which it was trained, as ancient: their dates do not matter.
    """
    report_plan()
    check_cluster()
    if wildcards.run_id in PLAN.pending:
        return PLAN.training_inputs(wildcards.run_id)
    return list(map(ancient, PLAN.inputs_of_trained(wildcards.run_id)))


def record_command(wildcards, output):
    """The program that records a run without training, and its arguments, quoted."""
    run = PLAN.run(wildcards.run_id)
    log = f"results/runs/{run.id}/train.jsonl"
    if PLAN.is_unread(run.id):
        spec = json.dumps(run.values(), sort_keys=True)
        return shlex.join(["dlbench", "parse-run", log, "--spec", spec, "--put-aside"])
    messages = f"results/logs/train/{run.id}.log"
    arguments = run_command.start_run_arguments(PLAN, run.id)
    return shlex.join(
        ["start_run.py", "--log", log, "--messages", messages, *arguments]
    )


def image_to_enter(wildcards):
    """Nothing, once the image of a run was prepared that Snakemake enters.

    What came of that decides whether it does; its file is among `training_inputs`.
    """
    if STARTED.is_main and PLAN.is_by_directive(wildcards.run_id):
        run = PLAN.run(wildcards.run_id)
        form = trainer_image.form_name(run)
        checkpoints.prepare_image.get(image=run.environment, form=form)
    return []


def run_records(wildcards):
    """The records to be made; all records if finished runs are requested too.

    Snakemake needs several times as long for ten thousand finished jobs as reading their records
    takes.
    """
    for search_id in PLAN.searches:
        checkpoints.find_batch.get(search=search_id)
    if PLAN.searches:
        plan_found_batches()
    run_ids = PLAN.runs if STARTED.asks_for_all else PLAN.pending
    return [f"results/runs/{run_id}/run.json" for run_id in run_ids]


def plan_found_batches():
    """Add the runs whose batches this start has found to the plan."""
    try:
        planning.plan_found_batches(config, PLAN)
    except Error as error:
        raise WorkflowError(f"The config cannot be used:\n{error}") from None
    JOBS.forget()
    set_variables()
    report_plan()
    check_cluster()


def measured_baselines(wildcards):
    """The files of the study's baselines on this machine."""
    check_cluster()
    return baselines.files(PLAN, STARTED.submits)


def figure_tables(wildcards):
    """The tables from which a figure is drawn."""
    with_baselines = baselines.for_figure(wildcards.figure, STUDY.figures)
    alone = baselines.is_alone(wildcards.figure)
    return [*with_baselines, *(() if alone else rules.collect_runs.output)]


def ends_of_bundles(wildcards):
    """The files that connect the runs of each bundle into one job; none if nothing is submitted."""
    if not (STARTED.is_main and STARTED.submits and PLAN.session):
        return []
    session_id = PLAN.session["id"]
    return [f"results/sessions/{session_id}.{name}.done" for name in JOBS.bundles]
