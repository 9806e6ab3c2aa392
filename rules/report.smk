"""One page to read, send and keep: tables, figures and what they carry.

Needs results/tables/ and results/figures/. Makes results/report.html. No part of `all`.
"""


rule report:
    """The report of the study, one HTML file that loads nothing."""
    input:
        "results/report.html",


rule build_report:
    """Put tables, figures, captions and findings into one file."""
    input:
        rules.collect_runs.output,
        rules.figures.input,
        code=PLAN.code("build_report.py"),
        looks=expand(
            "workflow_scripts/dlbench/{name}",
            name=["pages/page.css", "report/report.css", "report/report.js"],
        ),
    output:
        "results/report.html",
    log:
        "results/logs/build_report.log",
    conda:
        "../envs/workflow.yaml"
    params:
        figures=STUDY.figures,
    shell:
        "python workflow_scripts/build_report.py --output {output:q}"
        " --figures {params.figures:q} 2>{log:q}"
