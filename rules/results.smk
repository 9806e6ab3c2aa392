"""From event logs to records, and from records to tables.

Needs every run's train.jsonl. Makes run.json, steps.parquet and evals.parquet
in each run's folder, and results/tables/.
"""


rule tables:
    """The tables of the study."""
    input:
        expand("results/tables/{name}.parquet", name=["runs", "evals", "coverage"]),


rule parse_run:
    """Read one run's logs into its record."""
    input:
        unpack(PLAN.parsing_inputs),
    output:
        "results/runs/{run_id}/run.json",
    log:
        "results/logs/parse_run/{run_id}.log",
    priority: lambda w: PLAN.priority(w.run_id)
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        log=lambda w: f"results/runs/{w.run_id}/train.jsonl",
        folder=lambda w: f"results/runs/{w.run_id}",
        spec=lambda w: PLAN.spec(w.run_id),
    shell:
        "python workflow_scripts/parse_run.py {params.log:q}"
        " --spec {params.spec:q} --output {params.folder:q} 2>{log:q}"


rule collect_runs:
    """Collect all records, each checked to the last byte."""
    input:
        records=expand("results/runs/{run_id}/run.json", run_id=sorted(RUNS)),
        code=PLAN.code("collect_runs.py"),
    output:
        multiext("results/tables/runs", ".parquet", ".csv"),
        multiext("results/tables/coverage", ".parquet", ".csv"),
        "results/tables/evals.parquet",
    log:
        "results/logs/collect_runs.log",
    conda:
        "../envs/workflow.yaml"
    params:
        config=PLAN.config_json,
    shell:
        "python workflow_scripts/collect_runs.py"
        " --config-json {params.config:q} 2>{log:q}"
