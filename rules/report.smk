"""One page to read, send and keep: tables, figures and findings.

Needs results/tables/ and results/figures/. Makes results/report.html. Not part of `all`.
"""


rule report:
    """The report of the study: one HTML file without external resources."""
    input:
        session_done,
        "results/report.html",


rule build_report:
    """Put tables, figures, captions and findings into one file."""
    input:
        rules.collect_runs.output,
        rules.figures.input,
        code=executed("dlbench/report/build_report.py"),
        looks=own_code.looks("pages", "report"),
    output:
        "results/report.html",
    log:
        "results/logs/build_report.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        figures=STUDY.figures,
        # Builds the report again when a table of baselines has been made; it is not required.
        baselines=lambda w: baselines.digest(),
    shell:
        program("dlbench report") + " --output {output:q}"
        " --figures {params.figures:q} 2>&1 | tee {log:q} >&2"
