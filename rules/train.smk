"""Train each combination once; keep its event log and its record.

Needs the trainer's environment and the dataset's manifest. Makes
results/runs/{run_id}/train.jsonl, other ranks' logs beside it, and run.json.
A run whose record stands has no inputs, so that nothing but its record decides.
"""


rule runs:
    """Every run's record."""
    input:
        expand("results/runs/{run_id}/run.json", run_id=RUNS),


rule train:
    """Train one combination; what it prints goes to the log, its progress to the terminal."""
    input:
        unpack(training_inputs),
    output:
        log="results/runs/{run_id}/train.jsonl",
        record="results/runs/{run_id}/run.json",
    log:
        "results/logs/train/{run_id}.log",
    priority: lambda w: PLAN.priority(w.run_id)
    retries: PLAN.attempts - 1
    container:
        lambda w: PLAN.directive_image(w.run_id)
    resources:
        bench=1,
        # As a resource, since a change of it is no reason to train again.
        command=lambda w, attempt: PLAN.command(w.run_id, attempt),
    shell:
        "exec python workflow_scripts/start_run.py"
        " --log {output.log:q} --messages {log:q} {resources.command}"


rule read_run:
    """Make the record of a run whose log stands, where the record is lost or of another version."""
    output:
        "results/runs/{run_id}/run.json",
    log:
        "results/logs/read_run/{run_id}.log",
    wildcard_constraints:
        run_id=PLAN.unread,
    conda:
        "../envs/workflow.yaml"
    resources:
        # As in train: a parameter here would be a change to the rule that made the record.
        spec=lambda w: PLAN.spec(w.run_id),
    shell:
        "python workflow_scripts/parse_run.py results/runs/{wildcards.run_id:q}/train.jsonl"
        " --spec {resources.spec:q} 2>{log:q}"


ruleorder: read_run > train
