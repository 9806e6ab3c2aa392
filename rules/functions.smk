"""The functions that rules refer to: what they need, and the words of their commands.

Needs common.smk: the plan, and what begins a start.
"""

import os
import shlex
import sys

from dlbench.plan import baselines, plan, run_command
from dlbench.study import batch_searches


def once_found(*inputs):
    """The inputs of a target; as long as batches are to be found, what finds them instead."""
    return TO_FIND or inputs


def begun(wildcards):
    """Nothing, once the start has begun.

    Where it cannot, the target ends it: of a job between, Snakemake would take what is there.
    """
    let_records_decide()
    meet_cluster()
    return []


@once
def begin_searches():
    """Say which largest batches are to be found."""
    if BEGINS:
        print(
            f"to find before the runs that they give: {len(TO_FIND)}",
            *(search.label() for search, _ in PLAN.searches.values()),
            sep="\n",
            file=sys.stderr,
        )


def search_inputs(wildcards):
    """What the search for a largest batch needs; nothing where it is skipped."""
    let_digests_decide()
    begin_searches()
    meet_cluster()
    search, why_not = PLAN.searches[wildcards.search]
    return [] if why_not else plan.needs(search.run)


def searched_run(wildcards):
    """The run that a search tries with the least batch."""
    return PLAN.searches[wildcards.search][0].run


def find_batch_arguments(wildcards, output):
    """What follows find_batch.py and its files, quoted for the shell."""
    memory_mb = STUDY.site["memory_mb_per_node"]
    if SUBMITS:
        memory_mb = JOBS.memory_mb(wildcards.search)
    return shlex.join(
        run_command.find_batch_arguments(PLAN, wildcards.search, memory_mb)
    )


def go_on_with_found_batches():
    """Start anew once the batches that had to be found first are there: they give the runs."""
    if not (BEGINS and TO_FIND):
        return
    for search_id, (_, why_not) in PLAN.searches.items():
        known = batch_searches.found(search_id)
        if known is None or known.skipped != bool(why_not):
            return  # that was not asked for
    print(
        "the largest batches are found; going on with the runs that they give",
        file=sys.stderr,
        flush=True,
    )
    workflow.persistence.unlock()
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *sys.argv[1:]])


@asked_of_each_run
def training_inputs(wildcards):
    """The inputs of a run; asked for when the graph of jobs is there but not yet judged."""
    let_records_decide()
    meet_cluster()
    return PLAN.training_inputs(wildcards.run_id)


def run_records(wildcards):
    """The records that are to be made, or were made since they were listed.

    A run whose record stands is no job: nothing but the record decides, and to look at ten thousand
    such jobs takes Snakemake several times what their records take us. All of them are there for
    those who force what is done, or ask for more than to do what is not.
    """
    if TO_FIND:
        sys.exit(f"matrix: batch_per_device: max: {batch_searches.NOT_YET}")
    begun(wildcards)
    whole = (
        workflow.executor_plugin is None
        or workflow.touch
        or workflow.dag_settings.forceall
        or workflow.dag_settings.forcerun
    )
    run_ids = RUNS if whole else PLAN.unlisted
    return [f"results/runs/{run_id}/run.json" for run_id in run_ids]


def conversion_source(wildcards):
    """What says that the source files of a dataset are there."""
    let_digests_decide()
    return f"results/data/{wildcards.dataset}/source.json"


def environments_and_images(wildcards):
    """What says that they are there."""
    let_records_decide()
    return PLAN.environments


@asked_of_each_run
def start_run_arguments(wildcards, output):
    """What follows start_run.py and its files, quoted for the shell.

    Asks for output only because Snakemake trains nothing again where such a parameter changes.
    """
    return run_command.StartRunArguments(PLAN, wildcards.run_id)


@asked_of_each_run
def directive_image(wildcards):
    """What the container directive enters for a run."""
    return PLAN.directive_image(wildcards.run_id)


@asked_of_each_run
def training_priority(wildcards):
    """Higher for runs that come earlier in the seeded order."""
    return PLAN.priority(wildcards.run_id)


@asked_of_each_run
def attempt_of_job(wildcards, attempt):
    """How often a run was tried in this start, this time included."""
    return attempt


def prepare_image_arguments(image, form):
    """Flags of prepare_image.py, quoted for the shell."""
    return shlex.join(run_command.prepare_image_arguments(PLAN, image, form))


def measured_baselines(wildcards):
    """The baselines of the study on this machine."""
    let_digests_decide()
    meet_cluster()
    return baselines.files(PLAN, SUBMITS)


def baseline_inputs(wildcards):
    """What a baseline needs."""
    let_digests_decide()
    return baselines.inputs(PLAN, wildcards.baseline)


def baseline_run(wildcards):
    """A run that would be started as a baseline is."""
    return baselines.find(PLAN, wildcards.baseline).run


def baseline_arguments(wildcards, output):
    """What follows start_baseline.py and its files, quoted for the shell.

    Asks for output, so that Snakemake measures nothing again where such a parameter changes.
    """
    return baselines.arguments(PLAN, wildcards.baseline, str(output))


def figure_tables(wildcards):
    """The tables that a figure is drawn from."""
    with_baselines = baselines.for_figure(wildcards.figure, STUDY.figures)
    alone = baselines.is_alone(wildcards.figure)
    return [*with_baselines, *(() if alone else rules.collect_runs.output)]


def bundle(wildcards):
    """The job that a run shares with others like it."""
    name = JOBS.bundle(wildcards.run_id)
    # Of all bundles, as many runs as the profile says under group-components: bundle.
    workflow.parent_groupids[name] = "bundle"
    return name
