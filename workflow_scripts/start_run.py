"""Start the trainer of one run under supervision and write the run's record.

Exit code 0 means that there is a result: trained, or failed in a way that would
repeat itself. Anything else: try again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from dlbench import parsing, supervisor
from dlbench.cli import run_program
from dlbench.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, type=Path, help="event log of the run")
    parser.add_argument("--messages", required=True, type=Path, help="what the trainer prints")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--position", default="", help="as in 3/36, for progress lines")
    parser.add_argument("--made-from", type=json.loads, default={}, help="digests, as JSON")
    parser.add_argument("--skip", default="", help="record this reason instead of training")
    parser.add_argument("--time-limit-s", type=float, default=float("inf"))
    parser.add_argument(
        "--hang-limit-s", type=float, default=float("inf"), help="without a step or the like"
    )
    parser.add_argument("--checkpoint", type=Path, help="where the trainer keeps its checkpoints")
    parser.add_argument("--attempt", type=int, default=1)
    parser.add_argument("--attempts", type=int, default=1, help="the last one is recorded")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: starts the trainer")
    args = parser.parse_args()
    run = Run.from_json(args.spec)
    watched = supervisor.Watched(
        log=args.log,
        messages=args.messages,
        command=tuple(args.command[1:] if args.command[:1] == ["--"] else args.command),
        label=run.label(),
        position=args.position,
        launch={"made_from": args.made_from, **_commit()},
        time_limit_s=args.time_limit_s,
        hang_limit_s=args.hang_limit_s,
        checkpoint=args.checkpoint,
        last_attempt=args.attempt >= args.attempts,
        copies=run.copies_per_node,
    )
    if args.skip:
        supervisor.skip(watched, args.skip)
    elif not supervisor.supervise(watched):
        sys.exit(1)
    parsing.parse(run, args.log, args.log.with_name("run.json"))


def _commit():
    """Commit of the workflow and whether its tracked files differ from it; unknown without git."""
    folder = Path(__file__).parent

    def git(*words):
        try:
            answer = subprocess.run(
                ["git", "-C", folder, *words], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    changes = git("status", "--porcelain", "--untracked-files=no")
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),
    }


if __name__ == "__main__":
    run_program(main)
