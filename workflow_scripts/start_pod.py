"""Start this pod's processes of a run on the pods of an indexed Kubernetes Job.

The manifests of `dlbench kubernetes-job` give each pod the variables
    JOB_COMPLETION_INDEX  index of the pod, from 0
    DLBENCH_POD_HOSTS     host names of all pods in order, separated by commas
    DLBENCH_POD_PORT      port of pod 0 for the rendezvous
    DLBENCH_POD_WAIT_S    how long to wait for the other pods
    DLBENCH_POD_LINGER_S  how long a pod waits after its processes failed before it ends
Exit code: 0 if all processes of all pods succeed, else that of the first that failed. Needs the
standard library only, and Horovod if the run uses it.
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
    parser.add_argument("--meet", action="store_true", help="only wait until all pods have started")
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
