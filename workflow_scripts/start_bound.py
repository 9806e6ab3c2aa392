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
    add = parser.add_argument
    add("--spec", required=True, help="fields of the run, JSON")
    add("--log", required=True, type=Path, help="event log of the run")
    output = "folder for what the process was bound to"
    add("--output", required=True, type=Path, help=output)
    add("--device", default="cpu", choices=["cpu", "gpu"])
    add("--site-binding", default=binding.AUTO, choices=binding.MODES)
    add("--share-gpus", action="store_true")
    visible = [start_bound.NODE, start_bound.OWN]
    add("--visible-gpus", default=start_bound.NODE, choices=visible)
    add("command", nargs=argparse.REMAINDER, help="after --: the program")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    start_bound.start(Run.from_json(options.spec), options, command)


if __name__ == "__main__":
    run_program(main)
