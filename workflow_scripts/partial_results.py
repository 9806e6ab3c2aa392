"""Write tables and figures of the runs finished so far, also during a campaign.

They go into a separate folder with tables/ and figures/ as in results/. This starts and locks
nothing, and does not change the results.
"""

import argparse

from dlbench.campaign import partial_results
from dlbench.common.command_line import add_configfile, run_program
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="outside results/")
    add_configfile(parser)
    args = parser.parse_args()
    partial_results.write(config.study_from_files(args.configfile), args.output)


if __name__ == "__main__":
    run_program(main)
