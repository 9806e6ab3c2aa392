"""Train a run with another program: start it, keep its output, and write the run's event log.

start_run.py starts this for runs with a trainer of the config. Exit code 0 means that the program
succeeded. Its log is checked when the record is written.
"""

import argparse
import json
import os
from pathlib import Path

from dlbench.common import command_line
from dlbench.common.command_line import run_program
from dlbench.imports import train_external
from dlbench.imports.train_external import Watching
from dlbench.machine import gpus
from dlbench.study import trainer_environments
from dlbench.study.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, type=Path, help="event log of the run")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument(
        "--kind", default="auto", help="of the program's log: an importer's name, or patterns, JSON"
    )
    parser.add_argument("--image-id", help="what the marker says of the image it is to be in")
    parser.add_argument(
        "--gpus", type=command_line.whole(0), default=0, help="of this node that it is to use"
    )
    parser.add_argument(
        "--sample-every-s", type=command_line.real(minimum=0), default=0.0, help="0: no samples"
    )
    parser.add_argument("--stop-signal", help="is passed on to the program, as SIGUSR1")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: trains")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    run, visible = Run.from_json(args.spec), gpus.visible_gpus(0, args.gpus)
    kind = json.loads(args.kind) if args.kind.startswith("{") else args.kind
    if visible:
        gpus.find_nvml(trainer_environments.installed())
    command, log = train_external.of_copy(command, args.log, int(os.environ.get("DLBENCH_COPY", 0)))
    watching = Watching(args.sample_every_s, visible, run.nodes, args.stop_signal)
    train_external.train(run, command, kind, log, args.image_id, watching)


if __name__ == "__main__":
    run_program(main)
