"""What the machine attains without a model, measured through the libraries that train.

Needs the trainer's environment, and the manifests of the study's datasets. Makes
results/baselines/{machine}/{baseline}.json, kept for each machine and measured once, and
results/tables/baselines.parquet and .csv of all that are there. Nothing of `all` asks for it but
the figure communication.
"""


rule baselines:
    """Every baseline of the study on this machine, in a table and a figure."""
    input:
        list_of_remade,
        measured_baselines,
        baselines.TABLE,
        "results/figures/communication.svg",


rule measure_baseline:
    """Measure one, while nothing that is timed runs beside it."""
    input:
        baseline_inputs,
    output:
        "results/baselines/{machine}/{baseline}.json",
    log:
        "results/logs/baselines/{machine}-{baseline}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **(JOBS.resources_like(baseline_run) if STARTED.submits else {}),
        bench=1,
    params:
        command=baseline_arguments,
    shell:
        program("start_baseline.py", "exec python")
        + " --output {output:q} --messages {log:q} {params.command}"


rule collect_baselines:
    """Collect those of this machine, and what there is of others and of other studies."""
    input:
        measured_baselines,
    output:
        baselines.TABLE,
        report(
            "results/tables/baselines.csv",
            caption="tables.rst",
            category="Tables",
            labels={"table": "baselines"},
        ),
    log:
        "results/logs/collect_baselines.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        folder=str(baselines.FOLDER),
    shell:
        program("collect_baselines.py") + " {params.folder:q} 2>&1 | tee {log:q} >&2"
