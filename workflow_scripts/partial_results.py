"""Write the tables of what is done now and draw the study's figures, also during a campaign.

They go into a folder of their own, with tables/ and figures/ as in results/. Starts and locks
nothing and leaves the results as they are.
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
