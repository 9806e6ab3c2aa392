"""A workflow with as many jobs as a study and nothing else, to measure Snakemake itself."""

BARE = """
RUNS = [f"model-dataset-b{{number}}-r1-0123456789" for number in range({combinations})]
rule all:
    input: expand("results/runs/{{run}}/run.json", run=RUNS),
           "results/tables/runs.parquet", "results/figures/scaling.svg"
rule train:
    output: "results/runs/{{run}}/train.jsonl", "results/runs/{{run}}/run.json"
    shell: "touch {{output}}"
rule collect_runs:
    input: expand("results/runs/{{run}}/run.json", run=RUNS)
    output: "results/tables/runs.parquet"
    shell: "touch {{output}}"
rule draw_figure:
    input: "results/tables/runs.parquet"
    output: "results/figures/scaling.svg"
    shell: "touch {{output}}"
"""
