"""Start one process of a program of others on its share of the node: its cores, the run's GPUs.

start_run.py has the launcher of a run start this for each process; it is replaced by the program.
"""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.imports import start_bound
from dlbench.machine import binding
from dlbench.study.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--log", required=True, type=Path, help="event log of the run")
    parser.add_argument(
        "--output", required=True, type=Path, help="folder for what the process was bound to"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--site-binding", default=binding.AUTO, choices=binding.MODES)
    parser.add_argument("--share-gpus", action="store_true")
    parser.add_argument(
        "--visible-gpus", default=start_bound.NODE, choices=[start_bound.NODE, start_bound.OWN]
    )
    parser.add_argument("--first-node", help="address of the run's first node, if it has several")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: the program")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    start_bound.start(Run.from_json(options.spec), options, command)


if __name__ == "__main__":
    run_program(main)
