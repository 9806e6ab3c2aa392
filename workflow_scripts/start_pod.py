"""Start this pod's processes of a run that is spread over the pods of an indexed Job.

Made for the manifests of write_kubernetes_job.py, which give each pod the variables
    JOB_COMPLETION_INDEX  its number, from 0
    DLBENCH_POD_HOSTS     the host names of all pods in order, separated by commas
    DLBENCH_POD_PORT      where pod 0 is met
    DLBENCH_POD_WAIT_S    how long the other pods are waited for
    DLBENCH_POD_LINGER_S  how much later than its processes a pod ends that has failed
Exit code 0 means that all processes of all pods ended well; else it is that of the first that
failed. Needs the standard library only, and Horovod where that is what runs.
"""

import argparse
import os
import sys

from dlbench import Error
from dlbench.common.command_line import parse_job_counts, run_program
from dlbench.starting import start_pod


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--meet", action="store_true", help="only wait until all pods are there")
    parser.add_argument(
        "--jobs", type=parse_job_counts, help="processes in all pods, as in chief=1,worker=2"
    )
    parser.add_argument(
        "--finding",
        choices=start_pod.DISCOVERY,
        default="nothing",
        help="how they find one another",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: what each runs")
    args = parser.parse_args()
    pod = start_pod.Pod(
        index=int(_variable("JOB_COMPLETION_INDEX")),
        hosts=_variable("DLBENCH_POD_HOSTS").split(","),
        port=int(_variable("DLBENCH_POD_PORT")),
        wait_s=float(_variable("DLBENCH_POD_WAIT_S")),
        linger_s=float(os.environ.get("DLBENCH_POD_LINGER_S", 0)),
    )
    if args.meet:
        pod.rendezvous()
        return
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or "worker" not in (args.jobs or {}):
        parser.error("expected --jobs with workers, and a command after --")
    sys.exit(start_pod.run(pod, args.jobs, args.finding, command))


def _variable(name):
    try:
        return os.environ[name]
    except KeyError:
        raise Error(f"{name} is not set: is this a pod of an indexed Job of ours?") from None


if __name__ == "__main__":
    run_program(main)
