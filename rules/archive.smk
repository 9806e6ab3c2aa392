"""One zip file from which others can check all results and make every table and figure again.

Needs all records and logs, results/tables/, results/figures/ and results/report.html. Makes
results/archive.zip. Not part of `all`.
"""

from dlbench.archive.write_archive import workflow_files


rule archive:
    """The archive of the study."""
    input:
        session_done,
        "results/archive.zip",


rule write_archive:
    """Put workflow, config, logs, records, tables, figures and report into one bag."""
    input:
        rules.list_records.output,
        rules.collect_runs.output,
        rules.figures.input,
        rules.build_report.output,
        imports=expand(
            "results/imports/{name}/runs.parquet", name=run_command.import_names(STUDY)
        ),
        # The archive contains the whole workflow.
        code=lambda w: [str(own_code.project_path(name)) for name in workflow_files()],
    output:
        "results/archive.zip",
    log:
        "results/logs/write_archive.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        config=merged_config,
    shell:
        program("dlbench archive") + " --config-json {params.config:q}"
        " --output {output:q} 2>&1 | tee {log:q} >&2"
