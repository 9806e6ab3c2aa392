"""dlbench: from datasets to figures, every combination trained once.

Targets: all (the default), data, images, batches, runs, tables, figures; and report, archive,
baselines, tensorboard, history and site, which are not part of all.
"""

from snakemake.utils import min_version

min_version("9.19")


# Runs are timed one after the other on this machine and in a job, not on a whole cluster.
resource_scopes:
    bench="local",


include: "rules/config.smk"


# config.yaml and, if it exists, site.yaml, which describes the machine of a site.
for file in CONFIG_FILES:

    configfile: file


# A study given with --configfile, or to the module, is merged over these key by key; its matrix
# replaces that of config.yaml.
if STARTED.is_module:
    config = config_files.laid_over(config)


include: "rules/common.smk"
include: "rules/functions.smk"
include: "rules/sessions.smk"
include: "rules/images.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/imports.smk"
include: "rules/results.smk"
include: "rules/baselines.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/archive.smk"
include: "rules/tensorboard.smk"
include: "rules/history.smk"


onstart:
    trainer_environments.write_choices(PLAN.with_tries)


# These do nothing in jobs, in which Snakemake is started again.
onsuccess:
    if STARTED.is_main:
        fates.settle_links()


onerror:
    if STARTED.is_main:
        fates.settle_links()
        if scheduler():
            cancel_open_jobs()
        status = tools.dlbench_command("status")
        print(plan.FAILURE_MESSAGE.format(status=status), file=sys.stderr)


# The default, as the first rule of this file.
rule all:
    """Every run's record, the tables and the figures."""
    input:
        rules.tables.input,
        rules.figures.input,
