"""Forget failures or other results of a study, and start the workflow, which trains them again.

The workflow also trains missing runs. Arguments after -- are passed to Snakemake, whose exit code
this program returns. If there is nothing to forget, nothing is started.

Example: retry_runs.py --status oom --configfile my_study.yaml -- --cores 4
"""

import argparse
import os
import sys

from dlbench.campaign import forget_runs
from dlbench.common.command_line import add_configfile, run_program
from dlbench.study import config

DRY = ("-n", "-np", "--dry-run", "--dryrun")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [OPTIONS] [RUN_ID ...] [-- OPTIONS OF SNAKEMAKE]",
    )
    forget_runs.add_selection_flags(parser)
    add_configfile(parser)
    arguments, snakemake = _split_at_dashes(sys.argv[1:])
    args = parser.parse_args(arguments)
    files = args.configfile or _config_files(snakemake)
    if args.configfile:
        if _config_files(snakemake):
            parser.error("--configfile: expected once, found before -- and after it")
        snakemake = [*snakemake, "--configfile", *files]
    if any(argument in DRY for argument in snakemake):
        parser.error("expected --dry-run before --, which forgets nothing; found it after --")
    study = config.study_from_files(files)
    chosen = forget_runs.select(args, study)
    if not chosen:
        print(f"no run of the study {study.name!r} to try again: nothing is started")
        return
    if not args.dry_run:
        forget_runs.check_not_running()
    forget_runs.forget(chosen, args.dry_run)
    if not args.dry_run:
        # Replaces this process, so that Snakemake gets the signals and sets the exit code.
        os.execv(sys.executable, [sys.executable, "-m", "snakemake", *snakemake])


def _split_at_dashes(arguments):
    """(arguments before --, arguments after it)."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:cut], arguments[cut + 1 :]


def _config_files(arguments):
    """The config files among the arguments of Snakemake."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    return parser.parse_known_args(arguments)[0].configfile


if __name__ == "__main__":
    run_program(main)
