"""Start the trainer of one run, supervise it, and write the run's record.

Exit code 0 means that there is a result: the run was trained, or failed in a way
that would occur again. Any other code: try again.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

from dlbench import schedulers
from dlbench.starting import neighbours

TURN = schedulers.take_turn()  # first: a run before this one would be measured as a neighbour
WATCH = neighbours.Watch()  # measures what others use from here on, first during the imports

from dlbench.common.command_line import (  # noqa: E402
    real,
    run_program,
    whole,
)
from dlbench.starting import start_command, start_run  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--log", required=True, type=Path, help="event log of the run")
    add("--messages", required=True, type=Path, help="what the trainer prints")
    add("--spec", required=True, help="fields of the run, JSON")
    add("--label", default="", help="of the run, for progress lines")
    add("--position", default="", help="as in 3/36, for progress lines")
    add("--runs-after", type=whole(0), default=0, help="for the time that is left")
    add("--made-from", type=json.loads, default={}, help="digests, as JSON")
    add("--skip", default="", help="record this reason instead of training")
    add("--unless", type=json.loads, help="ids of earlier repeats, and the target they may reach")
    add("--time-limit-s", type=real(above=0), default=math.inf)
    add("--hang-limit-s", type=real(above=0), default=math.inf, help="without a step or the like")
    quiet = "most seconds to wait for others to use less than --others-share"
    add("--wait-for-quiet-s", type=real(minimum=0), default=0.0, help=quiet)
    share = "of the cores of its devices, above which the run is unstable"
    add("--others-share", type=real(above=0), help=share)
    add("--checkpoint", type=Path, help="where the trainer keeps its checkpoints")
    add("--attempt", type=whole(1), default=1)
    own = "of its own, the last of which is recorded; one more asks what ended it"
    add("--attempts", type=whole(1), default=1, help=own)
    tries = "with those that others ended, by preemption or so; not given: as --attempts"
    add("--tries", type=whole(1), help=tries)
    here = "make an attempt that is planned to be repeated again in this process; not given: exit "
    here += "code 1 asks whoever started it, as a scheduler whose job has the time of one attempt"
    add("--repeat-here", action="store_true", help=here)
    start_command.add_flags(parser)
    meter = "prints the watts of this node, one number a line"
    add("--power-meter", metavar="COMMAND", help=meter)
    limit = "sets the limit of a GPU, given -i UUID -pl WATTS; not given: nvidia-smi"
    add("--power-limit-command", metavar="COMMAND", help=limit)
    facts = "about workflow and site, for the log, as JSON"
    add("--facts", type=json.loads, default={}, help=facts)
    session = "of the workflow that starts it: id, started_at, host"
    add("--session", type=json.loads, help=session)
    kind = "another program trains, whose log is of this kind; or JSON"
    add("--external", metavar="KIND", help=kind)
    settings = (
        "of another program, as JSON: sample_every_s, site_binding, share_gpus, visible_gpus, "
    )
    settings += "stop_signal, stop_grace_s"
    add("--external-settings", type=json.loads, default={}, help=settings)
    trains = "after --: trains, as one process on bare metal; in it {flags} stands for train.py's "
    add("command", nargs=argparse.REMAINDER, help=f"{trains}flags of the run")
    options, environment = parser.parse_args(), {**os.environ}
    code = start_run.start(options, WATCH)
    if code == start_run.AGAIN:
        # Replaces this process, so that the next attempt begins without this one's state.
        arguments = start_run.arguments_of_attempt(sys.orig_argv[1:], options.attempt + 1)
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    sys.exit(code)


if __name__ == "__main__":
    run_program(main)
