"""Baselines: what the machine attains without a model, measured with the training frameworks.

Needs the trainer's environment, and the manifests of the study's datasets. Makes
results/baselines/{machine}/{baseline}.json, kept for each machine and measured once, and
results/tables/baselines.parquet and .csv with all existing ones. Of `all`, only the figure
communication needs them.
"""


rule baselines:
    """Every baseline of the study on this machine, in a table and a figure."""
    input:
        list_of_remade,
        measured_baselines,
        baselines.TABLE,
        "results/figures/communication.svg",


rule measure_baseline:
    """Measure one baseline; no timed job runs at the same time."""
    input:
        lambda w: baselines.inputs(PLAN, w.baseline),
    output:
        "results/baselines/{machine}/{baseline}.json",
    log:
        "results/logs/baselines/{machine}-{baseline}.log",
    # In the job of its node's runs, after them by priority: each node is waited for once.
    group:
        (
            (lambda w: JOBS.bundle(w.baseline))
            if STARTED.submits and STARTED.is_main
            else None
        )
    conda:
        "../envs/workflow.yaml"
    resources:
        **(JOBS.resources_of_baselines if STARTED.submits else {}),
        bench=1,
    params:
        command=lambda w, output: baselines.arguments(PLAN, w.baseline, str(output)),
    shell:
        program("start_baseline.py", "exec python")
        + " --output {output:q} --messages {log:q} {params.command}"


rule collect_baselines:
    """Collect this machine's baselines, and existing ones of other machines and studies."""
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
        program("dlbench baselines") + " {params.folder:q} 2>&1 | tee {log:q} >&2"
