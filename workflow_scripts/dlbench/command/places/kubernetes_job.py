"""Write one run as an indexed Job of Kubernetes, for kubectl apply -f -.

One pod per node of the run; the workflow's folder, with its environments and results, is on a
volume that all pods and this machine mount. The run has `launcher: kubernetes` in the config. Start
this in the workflow's folder; docs/kubernetes.md has more.
"""

import argparse
import dataclasses
import os
import sys

from dlbench.cluster import write_kubernetes_job
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", help="as the workflow's messages and results/runs name it")
    add_configfile(parser)
    parser.add_argument("--image", required=True, help="of the pods, best with its digest")
    parser.add_argument(
        "--claim", required=True, metavar="PVC", help="claim of the volume that all pods share"
    )
    parser.add_argument(
        "--mount", required=True, metavar="PATH", help="where it is mounted in the pods"
    )
    parser.add_argument(
        "--folder", default=os.getcwd(), metavar="PATH",
        help="the workflow's folder in the pods, below --mount; default: the path it has here",
    )  # fmt: skip
    parser.add_argument(
        "--gpu-resource", metavar="NAME", help="what pods ask for GPUs by, as in nvidia.com/gpu"
    )
    parser.add_argument(
        "--python", metavar="PATH",
        help="of the trainer in the image; default: envs/{environment}/.venv/bin/python",
    )  # fmt: skip
    parser.add_argument(
        "--workflow-python", default=".venv/bin/python", metavar="PATH",
        help="what supervises the run in pod 0; default: %(default)s",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    names = [field.name for field in dataclasses.fields(write_kubernetes_job.Place)]
    place = write_kubernetes_job.Place(**{name: getattr(args, name) for name in names})
    settings = config.read("config.yaml", *args.configfile)
    sys.stdout.write(write_kubernetes_job.manifest(settings, args.run_id, place))
