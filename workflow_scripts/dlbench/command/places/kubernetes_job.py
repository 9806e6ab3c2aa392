"""Write one run as an indexed Job of Kubernetes, for kubectl apply -f.

One pod per node of the run; the workflow's folder, with its environments and results, is on a
volume that all pods and this machine mount. The run has `launcher: kubernetes` in the config. Start
this in the workflow's folder; docs/kubernetes.md has more.
"""

import argparse
import os
import sys
from pathlib import Path

from dlbench.cluster import write_kubernetes_job
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", help="as the workflow's messages and results/runs name it")
    add_configfile(parser)
    parser.add_argument("--image", required=True, help="of the pods, best with its digest")
    parser.add_argument("--namespace", default="default", help="of the Job (%(default)s)")
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
    parser.add_argument("--service-account", metavar="NAME", help="of the pods")
    parser.add_argument(
        "--node-selector",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a label of the nodes that pods may be on",
    )
    parser.add_argument(
        "--env", action="append", default=[], type=_pair, metavar="NAME=VALUE",
        help="a variable for all processes, such as HOROVOD_GLOO_IFACE=eth1",
    )  # fmt: skip
    parser.add_argument(
        "--python", metavar="PATH",
        help="of the trainer in the image; default: envs/{environment}/.venv/bin/python",
    )  # fmt: skip
    parser.add_argument(
        "--workflow-python", default=".venv/bin/python", metavar="PATH",
        help="what supervises the run in pod 0; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="file; default: standard output")


def run(args: argparse.Namespace) -> None:
    place = write_kubernetes_job.Place(
        image=args.image,
        claim=args.claim,
        mount=args.mount,
        folder=args.folder,
        namespace=args.namespace,
        gpu_resource=args.gpu_resource,
        service_account=args.service_account,
        node_selector=dict(args.node_selector),
        python=args.python,
        workflow_python=args.workflow_python,
        environment=dict(args.env),
    )
    settings = config.read("config.yaml", *args.configfile)
    text = write_kubernetes_job.text(write_kubernetes_job.manifests(settings, args.run_id, place))
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def _pair(text):
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    return key, value
