"""Fetch the source files of a dataset and check their size and SHA-256."""

import argparse

from dlbench import conversion, plugins
from dlbench.cli import run_program
from dlbench.files import write_json


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=plugins.names("datasets"))
    parser.add_argument("--folder", required=True, help="where the source files go")
    parser.add_argument("--stamp", help="JSON file that lists what was checked, written last")
    args = parser.parse_args()
    checked = conversion.fetch(args.dataset, args.folder)
    if args.stamp:
        write_json(args.stamp, checked)


if __name__ == "__main__":
    run_program(main)
