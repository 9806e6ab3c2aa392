"""Import logs and tables of other programs and sites.

Needs the paths under imports in the config. Makes results/imports/{import}/, whose rows
rules/results.smk adds to the study's own.
"""


rule import_results:
    """Read logs of other programs, or another site's results, once.

    Unreadable logs are reported (exit code 3); the others are in the tables.
    """
    input:
        lambda w: run_command.import_inputs(STUDY, w.name),
    output:
        expand(
            "results/imports/{{name}}/{table}.parquet",
            table=["runs", "steps", "evals", "samples", "metrics"],
        ),
    log:
        "results/logs/import_results/{name}.log",
    wildcard_constraints:
        name="[a-z0-9_]+",
    # Errors in imports are reported before the first run is trained.
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        # Their number, since Snakemake does not notice that an input was deleted.
        files=lambda w, input: len(input),
        flags=lambda w: run_command.import_flags(STUDY, w.name),
        folder="results/imports/{name}",
    shell:
        program("dlbench import", "(python") + " {params.flags}"
        " --output {params.folder:q}/runs.parquet --steps {params.folder:q}/steps.parquet"
        " --evals {params.folder:q}/evals.parquet --samples {params.folder:q}/samples.parquet"
        " --metrics {params.folder:q}/metrics.parquet"
        " || test $? -eq 3)"
        " 2>&1 | tee {log:q} >&2"
