"""Start several processes with the same command on this machine and wait for all.

They are the processes of one tf.distribute cluster (--jobs), or copies of one run that train at
the same time, each on its own devices (--copies). Exit code: 0 if all succeed, else that of the
first process that failed.
"""

import argparse
import sys

from dlbench.common import command_line
from dlbench.common.command_line import parse_job_counts, run_program
from dlbench.starting import start_processes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    jobs = "kinds of process, as in chief=1,ps=1,worker=2"
    group.add_argument("--jobs", type=parse_job_counts, help=jobs)
    count = {"type": command_line.whole(1), "metavar": "N"}
    group.add_argument("--copies", **count, help="each has DLBENCH_COPY")
    parser.add_argument("--cores-each", **count, help="cores that each copy keeps to")
    gpus = "GPUs that each copy sees, of those in CUDA_VISIBLE_DEVICES"
    parser.add_argument("--gpus-each", **count, help=gpus)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: what each runs")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("expected a command after --, found none")
    if args.jobs:
        if args.cores_each or args.gpus_each:
            parser.error("--cores-each and --gpus-each are for --copies")
        sys.exit(start_processes.run(args.jobs, command))
    each = args.cores_each or 0, args.gpus_each or 0
    sys.exit(start_processes.run_copies(args.copies, command, *each))


if __name__ == "__main__":
    run_program(main)
