"""dlbench: from datasets to figures, every combination trained once.

Targets: all (the default), data, images, runs, tables, figures; tensorboard, no part of all.
"""

from snakemake.utils import min_version

min_version("9.27")


# A study given with --configfile is laid over this one, key by key; its matrix replaces ours.
configfile: "config.yaml"


include: "rules/common.smk"
include: "rules/images.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/results.smk"
include: "rules/figures.smk"
include: "rules/tensorboard.smk"


localrules:
    all,
    data,
    images,
    runs,
    tables,
    figures,
    tensorboard,


rule all:
    """Every run's record, the tables and the figures."""
    default_target: True
    input:
        rules.runs.input,
        rules.tables.input,
        rules.figures.input,
