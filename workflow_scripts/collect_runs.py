"""Collect the records of a study's runs into results/tables/."""

import argparse

from dlbench import collecting, config, site
from dlbench.cli import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--config", nargs="+", default=["config.yaml"], help="config files, the last one winning"
    )
    given.add_argument("--config-json", metavar="FILE", help="the merged config")
    parser.add_argument("--output", default="results/tables", help="folder of the tables")
    args = parser.parse_args()
    study = config.study(config.merged(args.config_json) or config.read(*args.config))
    collecting.collect(study, site.devices(study.site).kind, args.output)


if __name__ == "__main__":
    run_program(main)
