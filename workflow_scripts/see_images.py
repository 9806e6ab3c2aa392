"""Report the images that could not be made or prepared; exit code 1 if there are any.

The workflow goes on with the runs that do not need them.
"""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.images import see_images


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", nargs="*", type=Path, help="as prepare_image.py wrote it")
    see_images.check(parser.parse_args().form)


if __name__ == "__main__":
    run_program(main)
