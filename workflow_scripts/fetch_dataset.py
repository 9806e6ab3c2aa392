"""Download the source files of a dataset and compare them with the published digests."""

import argparse

from dlbench.common import flag_types
from dlbench.common.command_line import run_program
from dlbench.common.files import write_json
from dlbench.data import fetch_dataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    flag_types.add_dataset(parser)
    parser.add_argument("--folder", required=True, help="where the source files go")
    parser.add_argument("--stamp", help="JSON file that lists what was checked, written last")
    parser.add_argument("--manual-dir", help="folder with files put there by hand")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument(
        "--terms-accepted", action="store_true", help="you have accepted the dataset's terms"
    )
    args = parser.parse_args()
    flag_types.check_dataset(parser, args)
    checked = fetch_dataset.fetch(
        args.dataset,
        args.folder,
        manual_dir=args.manual_dir,
        offline=args.offline,
        terms_accepted=args.terms_accepted,
    )
    if args.stamp:
        write_json(args.stamp, checked)


if __name__ == "__main__":
    run_program(main)
