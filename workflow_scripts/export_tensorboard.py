"""Write the logs of runs for TensorBoard, one TensorBoard run each.

Runs in the trainer's environment, which has TensorBoard's writer:

    envs/train/.venv/bin/python workflow_scripts/export_tensorboard.py results/runs/* \\
        --output results/tensorboard
"""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="*", type=Path, help="folder of a run, results/runs/{run_id}"
    )
    parser.add_argument(
        "--table", type=Path, help="runs.csv: all runs in it that were trained here"
    )
    parser.add_argument(
        "--output", required=True, type=Path, help="where a folder for each run is made"
    )
    args = parser.parse_args()
    # Here, for --help must work where TensorBoard is missing.
    from dlbench.results import export_tensorboard

    folders = args.folder + (export_tensorboard.own_run_folders(args.table) if args.table else [])
    if not folders:
        parser.error("expected folders of runs, or --table with runs that were trained here")
    export_tensorboard.export(folders, args.output)


if __name__ == "__main__":
    run_program(main)
