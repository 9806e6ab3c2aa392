"""Forget failures or other results of a study, and start the workflow, which trains them again.

The workflow also trains missing runs. Arguments after -- are passed to Snakemake, whose exit code
this program returns. If there is nothing to forget, nothing is started.

Example: dlbench retry --status oom --configfile my_study.yaml -- --cores 4
"""

import argparse

from dlbench import Error
from dlbench.campaign import forget_runs
from dlbench.command import starting
from dlbench.command.study_files import add_configfile
from dlbench.study import config

DRY = ("-n", "-np", "--dry-run", "--dryrun")
PASSES_ON = True
USAGE = "[OPTIONS] [RUN_ID ...] [-- OPTIONS OF SNAKEMAKE]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forget_runs.add_selection_flags(parser)
    add_configfile(parser)


def run(args: argparse.Namespace) -> None:
    snakemake = args.passed_on
    files = args.configfile or starting.config_files(snakemake)
    if args.configfile:
        if starting.config_files(snakemake):
            raise Error("--configfile: expected once, found before -- and after it")
        snakemake = [*snakemake, "--configfile", *files]
    if any(argument in DRY for argument in snakemake):
        raise Error("expected --dry-run before --, which forgets nothing; found it after --")
    study = config.study_from_files(files)
    chosen = forget_runs.select(args, study)
    if not chosen:
        print(f"no run of the study {study.name!r} to try again: nothing is started")
        return
    if not args.dry_run:
        forget_runs.check_not_running()
    forget_runs.forget(chosen, args.dry_run)
    if not args.dry_run:
        starting.become_snakemake(snakemake)
