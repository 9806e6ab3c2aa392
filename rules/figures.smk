"""Draw the figures that the config names.

Needs results/tables/. Some figures also need the table of baselines, or draw it if it exists.
Makes results/figures/{figure}.svg, .png and .pdf.
"""


rule figures:
    """Every figure of the study."""
    input:
        session_done,
        expand("results/figures/{figure}.svg", figure=STUDY.figures),


rule draw_figure:
    """Draw one figure; its files are the same byte for byte if the tables are."""
    input:
        figure_tables,
        code=lambda w: PLAN.code("draw_figure.py", plugins.path("figures", w.figure)),
    output:
        report(
            "results/figures/{figure}.svg",
            caption="caption.rst",
            category=lambda w: plugins.constants("figures", w.figure)["CATEGORY"],
            labels={"figure": "{figure}"},
        ),
        "results/figures/{figure}.png",
        "results/figures/{figure}.pdf",
    log:
        "results/logs/draw_figure/{figure}.log",
    benchmark:
        "results/benchmarks/draw_figure/{figure}.tsv"
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        caption=lambda w, threads: plugins.constants("figures", w.figure)["CAPTION"],
        # Draws the figure again when a table of baselines has been made.
        baselines=lambda w: baselines.digest_if_beside(w.figure, STUDY.figures),
    shell:
        program("draw_figure.py") + " {wildcards.figure:q} 2>&1 | tee {log:q} >&2"
