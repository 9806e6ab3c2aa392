"""Convert a user's pictures to TFRecord shards with a manifest."""

import argparse
import json
from pathlib import Path

from dlbench.common import flag_types
from dlbench.common.command_line import run_program
from dlbench.data import convert_pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help="its name in the config, under data.images")
    parser.add_argument("given", type=json.loads, help="what the config says there, as JSON")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for the shards and manifest.json"
    )
    parser.add_argument(
        "--workers", type=flag_types.whole(1), help="processes; by default one for each core"
    )
    args = parser.parse_args()
    convert_pictures.convert(args.dataset, args.given, args.output, args.workers)
    print(f"{args.dataset}: {args.output / 'manifest.json'} written")


if __name__ == "__main__":
    run_program(main)
