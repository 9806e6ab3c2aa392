"""Build an image, pull it, or take it where it lies, and write down which one it is."""

import argparse
import json
from pathlib import Path

from dlbench import image_sources, images
from dlbench.cli import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="what runs give as their environment")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="its entry under images in the config, JSON"
    )
    parser.add_argument("--output", required=True, type=Path, help="image.json, in its own folder")
    args = parser.parse_args()
    settings = images.settings(args.name, {args.name: args.settings})
    image_sources.make(args.name, settings, args.output)


if __name__ == "__main__":
    run_program(main)
