"""Submit and watch jobs of a scheduler: Snakemake's executor cluster-generic calls this.

`submit` prints the job's id, or why it was refused; `status` prints running, success or failed.
Neither prints anything else to standard output. dlbench/cluster/cluster_job.py describes jobs.
"""

import argparse
import sys
from pathlib import Path

from dlbench import Error
from dlbench.cluster import cluster_job
from dlbench.common import plugins
from dlbench.common.command_line import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=["submit", "status"])
    parser.add_argument("scheduler", choices=plugins.names("schedulers"))
    parser.add_argument("what", help="submit: the job script; status: the job's id")
    args = parser.parse_args()
    if args.do == "submit":
        _submit(args.scheduler, Path(args.what))
    else:
        print(_status(args.scheduler, args.what))


def _submit(scheduler, script):
    try:
        print(cluster_job.submit(scheduler, script))
    except Error as error:
        print(error)  # the plugin shows standard output, not errors
        sys.exit(1)


def _status(scheduler, job_id):
    """Never fails: the plugin would end the campaign. Prints an error; the plugin asks again."""
    try:
        return cluster_job.status(scheduler, job_id)
    except Exception as error:
        print(f"status of job {job_id}: {type(error).__name__}: {error}", file=sys.stderr)
        return "running"


if __name__ == "__main__":
    run_program(main)
