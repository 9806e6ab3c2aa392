"""Train each combination once; keep its event log and its record.

If the config asks for the largest batch, a search finds it first (results/batches/{search}/). The
runs depend on its result, so its rule is a checkpoint.

Needs the trainer's environment and the dataset's manifest. Makes
results/runs/{run_id}/train.jsonl, the logs of other ranks beside it, and run.json.
Runs that this machine cannot do are recorded as skipped, on the machine of Snakemake. A run with a
valid record is no job unless it is requested by name or forced: only the record decides.
"""


rule runs:
    """Every run's record."""
    input:
        session_done,
        plan.RECORDS_LIST,


rule batches:
    """The largest batches that the config asks for and that were not found yet."""
    input:
        list_of_remade,
        [str(search.output) for search, _ in PLAN.searches.values()],


checkpoint find_batch:
    """Find the largest batch that fits, by tries, which are not runs of the study."""
    input:
        search_inputs,
        remade("results/batches/{search}/found.json"),
    output:
        "results/batches/{search}/found.json",
    log:
        "results/logs/find_batch/{search}.log",
    # Finished tries are kept, so an interrupted search continues.
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        **(
            JOBS.resources_like(lambda w: PLAN.searches[w.search][0].run)
            if STARTED.submits and PLAN.searches
            else {}
        ),
        bench=1,
    params:
        command=find_batch_arguments,
    shell:
        program("dlbench find-batch", "exec python")
        + " --output {output:q} --messages {log:q} {params.command}"


rule train:
    """Train one run; its output goes to the log, its progress to the terminal."""
    input:
        training_inputs,
        *([image_to_enter] if PLAN.may_enter_images else []),
    output:
        log="results/runs/{run_id}/train.jsonl",
        record="results/runs/{run_id}/run.json",
    log:
        "results/logs/train/{run_id}.log",
    priority: lambda w: PLAN.priority(w.run_id)
    # One attempt more, which records how the scheduler ended the last one.
    retries: PLAN.tries if STARTED.submits else PLAN.attempts
    group:
        (lambda w: JOBS.bundle(w.run_id)) if STARTED.submits else None
    container:
        lambda w: PLAN.directive_image(w.run_id)
    resources:
        **(JOBS.resources if STARTED.submits else {}),
        bench=1,
        attempt=lambda w, attempt: attempt,
    params:
        lambda w, output: run_command.StartRunArguments(PLAN, w.run_id),
    shell:
        program("start_run.py", "exec python", STRICT + OUR_PYTHON)
        + " --log {output.log:q} --messages {log:q}"
        # On a cluster each attempt is a job with its own time limit; here one job makes them all.
        + ("" if STARTED.submits else " --repeat-here")
        + " --attempt {resources.attempt} {params}"


rule record_run:
    """Record a run without training: it cannot be done here, or its log exists already."""
    input:
        training_inputs,
    output:
        "results/runs/{run_id}/run.json",
    log:
        "results/logs/record_run/{run_id}.log",
    wildcard_constraints:
        run_id=PLAN.untrained_pattern,
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        command=record_command,
    shell:
        program("{params.command}") + " 2>&1 | tee {log:q} >&2"


ruleorder: record_run > train
