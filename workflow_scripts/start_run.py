"""Start the trainer of one run, supervise it, and write the run's record.

Exit code 0 means that there is a result: the run was trained, or failed in a way
that would occur again. Any other code: try again.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from dlbench import schedulers
from dlbench.starting import neighbours

TURN = schedulers.take_turn()  # first: a run before this one would be measured as a neighbour
WATCH = neighbours.Watch()  # measures what others use from here on, first during the imports

from dlbench.common import flag_types  # noqa: E402
from dlbench.common.command_line import run_program  # noqa: E402
from dlbench.starting import start_run  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, type=Path, help="event log of the run")
    parser.add_argument("--messages", required=True, type=Path, help="what the trainer prints")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--label", default="", help="of the run, for progress lines")
    parser.add_argument("--position", default="", help="as in 3/36, for progress lines")
    parser.add_argument(
        "--runs-after", type=flag_types.whole(0), default=0, help="for the time that is left"
    )
    parser.add_argument("--made-from", type=json.loads, default={}, help="digests, as JSON")
    parser.add_argument("--skip", default="", help="record this reason instead of training")
    parser.add_argument(
        "--unless", type=json.loads, help="ids of earlier repeats, and the target they may reach"
    )
    parser.add_argument("--time-limit-s", type=flag_types.real(above=0), default=float("inf"))
    parser.add_argument(
        "--hang-limit-s",
        type=flag_types.real(above=0),
        default=float("inf"),
        help="without a step or the like",
    )
    parser.add_argument(
        "--wait-for-quiet-s",
        type=flag_types.real(minimum=0),
        default=0.0,
        help="most seconds to wait for others to use less than --others-share",
    )
    parser.add_argument(
        "--others-share",
        type=flag_types.real(above=0),
        help="of the cores of its devices, above which the run is unstable",
    )
    parser.add_argument("--checkpoint", type=Path, help="where the trainer keeps its checkpoints")
    parser.add_argument("--attempt", type=flag_types.whole(1), default=1)
    parser.add_argument(
        "--attempts",
        type=flag_types.whole(1),
        default=1,
        help="of its own, the last of which is recorded; one more asks what ended it",
    )
    parser.add_argument(
        "--tries",
        type=flag_types.whole(1),
        help="with those that others ended, by preemption or so; not given: as --attempts",
    )
    parser.add_argument(
        "--repeat-here",
        action="store_true",
        help="make an attempt that is planned to be repeated again in this process; not given: "
        "exit code 1 asks whoever started it, as a scheduler whose job has the time of one attempt",
    )
    parser.add_argument("--form", type=Path, help="the run's image, as prepare-image wrote it")
    parser.add_argument("--bind", action="append", default=[], help="to be seen in a container")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument(
        "--network",
        default="auto",
        choices=["auto", "host"],
        help="auto: nobody else reaches the servers of a run on one node, where the kernel lets us",
    )
    parser.add_argument(
        "--node-address", help="how nodes are reached by their names, as in {node}-ib0"
    )
    parser.add_argument("--module", action="append", default=[], help="to be loaded")
    parser.add_argument(
        "--power-meter", metavar="COMMAND", help="prints the watts of this node, one number a line"
    )
    parser.add_argument(
        "--power-limit-command",
        metavar="COMMAND",
        help="sets the limit of a GPU, given -i UUID -pl WATTS; not given: nvidia-smi",
    )
    parser.add_argument(
        "--facts", type=json.loads, default={}, help="about workflow and site, for the log, as JSON"
    )
    parser.add_argument(
        "--session", type=json.loads, help="of the workflow that starts it: id, started_at, host"
    )
    parser.add_argument(
        "--external",
        metavar="KIND",
        help="another program trains, whose log is of this kind; or JSON",
    )
    parser.add_argument(
        "--external-settings",
        type=json.loads,
        default={},
        help="of another program, as JSON: sample_every_s, site_binding, share_gpus, visible_gpus, "
        "stop_signal, stop_grace_s",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="after --: trains, as one process on bare metal; in it {flags} stands for train.py's "
        "flags of the run",
    )
    options, environment = parser.parse_args(), {**os.environ}
    code = start_run.start(options, WATCH)
    if code == start_run.AGAIN:
        # Replaces this process, so that the next attempt begins without this one's state.
        arguments = start_run.arguments_of_attempt(sys.orig_argv[1:], options.attempt + 1)
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    sys.exit(code)


if __name__ == "__main__":
    run_program(main)
