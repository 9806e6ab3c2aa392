"""Show how a study stands: what is done, running, pending, failed, skipped or stale, and its cost.

Reads the config, the records and the logs; starts, locks and changes nothing, so it may be asked
at any time, also from another machine that sees the results.
"""

import argparse

from dlbench import campaign, config
from dlbench.cli import add_configfile, run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_configfile(parser)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="trained at a time; as many as now, if not given"
    )
    parser.add_argument("--runs", action="store_true", help="also one line a run")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="again and again")
    args = parser.parse_args()
    if args.watch is not None and args.watch <= 0:
        parser.error("--watch: expected a number of seconds above 0")
    if args.jobs is not None and args.jobs < 1:
        parser.error("--jobs: expected a number of runs of at least 1")
    study = config.study_of(args.configfile)
    campaign.show(study, args.jobs, args.runs, args.json, args.watch)


if __name__ == "__main__":
    run_program(main)
