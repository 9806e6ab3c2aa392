"""Find the largest batch per device that fits into memory, by trying.

The exit code is 0 also if not even the smallest batch fits; the output says so.
"""

import argparse
from pathlib import Path

from dlbench.common import flag_types
from dlbench.common.command_line import run_program
from dlbench.starting import find_batch
from dlbench.study.batch_searches import Search
from dlbench.study.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="fields of the try of the least batch, JSON")
    parser.add_argument("--output", required=True, type=Path, help="what is found; tries beside it")
    parser.add_argument("--messages", required=True, type=Path, help="what the trainers print")
    parser.add_argument("--skip", default="", help="write this reason instead of trying")
    parser.add_argument("--processes", type=flag_types.whole(1), default=1, help="on each node")
    parser.add_argument("--memory-mb", type=flag_types.whole(1), help="of a node, for all, MiB")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="after --: further arguments of start_run.py"
    )
    args = parser.parse_args()
    search = Search(Run.from_json(args.spec))
    if args.skip:
        find_batch.skip(search, args.output, args.skip)
        return
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    find_batch.find(search, args.output, command, args.messages, args.processes, args.memory_mb)


if __name__ == "__main__":
    run_program(main)
