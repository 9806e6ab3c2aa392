"""Train each combination once and keep its event log.

Needs the trainer's environment and the dataset's manifest. Makes
results/runs/{run_id}/train.jsonl, other ranks' logs beside it.
A run whose record stands has no inputs, so that nothing but its record decides.
"""


rule runs:
    """Every run's log and record."""
    input:
        expand(
            "results/runs/{run_id}/{file}",
            run_id=RUNS,
            file=["train.jsonl", "run.json"],
        ),


rule train:
    """Train one combination; what it prints goes to the log, its progress to the terminal."""
    input:
        unpack(training_inputs),
    output:
        "results/runs/{run_id}/train.jsonl",
    log:
        "results/logs/train/{run_id}.log",
    priority: lambda w: PLAN.priority(w.run_id)
    retries: PLAN.attempts - 1
    container:
        lambda w: PLAN.directive_image(w.run_id)
    resources:
        bench=1,
        # As resources, since a change of them is no reason to train again.
        supervised=lambda w, attempt: PLAN.supervision(w.run_id, attempt),
        trainer=lambda w: PLAN.trainer(w.run_id),
    shell:
        "exec python workflow_scripts/start_run.py"
        " --log {output:q} --messages {log:q} {resources.supervised}"
        " -- {resources.trainer}"
