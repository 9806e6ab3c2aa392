"""The environments that trainers run in.

Needs envs/{environment} (a locked uv project). Makes its .venv and
results/environments/{environment}.json, which lists what is installed.
"""


rule images:
    """Every environment of the study."""
    input:
        expand(
            "results/environments/{environment}.json",
            environment=sorted({run.environment for run in RUNS.values()}),
        ),


rule make_environment:
    """Install the pinned packages; what is there beside them (Horovod, say) stays."""
    input:
        "envs/{environment}/uv.lock",
    output:
        "results/environments/{environment}.json",
    log:
        "results/logs/make_environment/{environment}.log",
    priority: PREPARATION
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    shell:
        "python workflow_scripts/make_environment.py envs/{wildcards.environment:q}"
        " --output {output:q} 2>&1 | tee {log:q}"
