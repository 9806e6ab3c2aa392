"""Train each combination once; keep its event log and its record.

Where the config asks for the largest batch, that is found first: results/batches/{search}/. It gives
runs, so that it is a checkpoint.

Needs the trainer's environment and the dataset's manifest. Makes
results/runs/{run_id}/train.jsonl, other ranks' logs beside it, and run.json.
A run that this machine cannot do is recorded as skipped where Snakemake runs. A run whose record
stands is no job unless it is asked for by its name or by force: nothing but its
record decides.
"""


rule runs:
    """Every run's record."""
    input:
        session_done,
        records_list.PATH,


rule batches:
    """The largest batches that are asked for and were not found yet."""
    input:
        list_of_remade,
        [str(search.output) for search, _ in PLAN.searches.values()],


checkpoint find_batch:
    """Find the largest batch that fits, by tries that are no runs of the study."""
    input:
        search_inputs,
        remade("results/batches/{search}/found.json"),
    output:
        "results/batches/{search}/found.json",
    log:
        "results/logs/find_batch/{search}.log",
    # What was tried stands, so that a search that was ended goes on.
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        **(
            JOBS.resources_like(searched_run)
            if STARTED.submits and PLAN.searches
            else {}
        ),
        bench=1,
    params:
        command=find_batch_arguments,
    shell:
        program("find_batch.py", "exec python")
        + " --output {output:q} --messages {log:q} {params.command}"


rule train:
    """Train one combination; what it prints goes to the log, its progress to the terminal."""
    input:
        training_inputs,
        *([image_to_enter] if PLAN.may_enter_images else []),
    output:
        log="results/runs/{run_id}/train.jsonl",
        record="results/runs/{run_id}/run.json",
    log:
        "results/logs/train/{run_id}.log",
    priority: training_priority
    # One more, which records what the scheduler did to the last attempt.
    retries: PLAN.tries if STARTED.submits else PLAN.attempts
    group:
        bundle if STARTED.submits else None
    container:
        directive_image
    resources:
        **(JOBS.resources if STARTED.submits else {}),
        bench=1,
        attempt=attempt_of_job,
    params:
        start_run_arguments,
    shell:
        program("start_run.py", "exec python", STRICT + OUR_PYTHON)
        + " --log {output.log:q} --messages {log:q}"
        # On a cluster an attempt is a job, with the time of one; here it needs no new one.
        + ("" if STARTED.submits else " --repeat-here")
        + " --attempt {resources.attempt} {params}"


rule skip_run:
    """Record a run that cannot be done here, with the reason; it needs no node, and waits for none."""
    input:
        training_inputs,
    output:
        log="results/runs/{run_id}/train.jsonl",
        record="results/runs/{run_id}/run.json",
    log:
        "results/logs/skip_run/{run_id}.log",
    wildcard_constraints:
        run_id=PLAN.to_skip,
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        start_run_arguments,
    shell:
        program("start_run.py", "exec python")
        + " --log {output.log:q} --messages {log:q} {params}"


rule read_run:
    """Make the record of a run whose log stands, where the record is lost or of another version."""
    input:
        session_files,
    output:
        "results/runs/{run_id}/run.json",
    log:
        "results/logs/read_run/{run_id}.log",
    wildcard_constraints:
        run_id=PLAN.unread,
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        spec=lambda w, output: PLAN.spec(w.run_id),
    shell:
        program("parse_run.py") + " results/runs/{wildcards.run_id:q}/train.jsonl"
        " --spec {params.spec:q} --put-aside 2>&1 | tee {log:q} >&2"


ruleorder: read_run > skip_run > train
