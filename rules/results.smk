"""Make the tables from records and logs.

Needs every run's record, results/imports/ and the study's references. Makes
results/records.sha256, results/tables/, and steps.parquet, evals.parquet and samples.parquet in
each run's folder. Reports runs that missed their learning gate.
"""

from dlbench.tables import cells

# Tables that are written as CSV, too.
SMALL = [name for name in cells.OF_STUDY if name != "evals"]


rule tables:
    """The tables of the study."""
    input:
        session_done,
        expand("results/tables/{name}.parquet", name=cells.OF_STUDY),


rule list_records:
    """The digests of all records, one file that stands for them in what follows.

    Snakemake stores the inputs of a rule once for each output, and there are many tables.
    """
    input:
        session_done,
    output:
        plan.RECORDS_LIST,
    log:
        "results/logs/list_records.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        # The records are no arguments: in a large study they would be too long.
        START
        + "find results/runs -mindepth 2 -maxdepth 2 -name run.json -print0 | LC_ALL=C sort -z"
        " | xargs -0 sha256sum >{output:q} 2>{log:q}"


rule collect_runs:
    """Collect all records, and check the digest of each."""
    input:
        records=rules.list_records.output,
        imports=expand(
            "results/imports/{name}/runs.parquet", name=run_command.import_names(STUDY)
        ),
        batches=[str(search.output) for search in STUDY.searches.values()],
        references=[entry["path"] for entry in STUDY.references],
        code=executed("collect_runs.py"),
    output:
        expand("results/tables/{name}.parquet", name=SMALL),
        [
            report(
                f"results/tables/{name}.csv",
                caption="tables.rst",
                category="Tables",
                labels={"table": name},
            )
            for name in SMALL
        ],
        "results/tables/evals.parquet",
    log:
        "results/logs/collect_runs.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        config=merged_config,
    shell:
        program("collect_runs.py")
        + " --config-json {params.config:q} 2>&1 | tee {log:q} >&2"
