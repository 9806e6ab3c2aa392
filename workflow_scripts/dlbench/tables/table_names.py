"""The names of the tables, for those who need not load what reads them."""

# Of a study, in results/tables; each has its columns in tables/table_columns.py.
OF_STUDY = (
    "runs",
    "evals",
    "accounts",
    "metrics",
    "coverage",
    "comparisons",
    "speedups",
    "published",
    "drift",
    "nodes",
    "explanations",
    "tries",
)
OF_RUN = ("steps", "evals", "samples")  # in the folder of each run
OF_IMPORT = (*OF_RUN, "metrics")  # beside runs, of all runs of an import
# Of machines, in results/tables where they were measured: `snakemake baselines`.
OF_MACHINES = ("baselines",)
