"""Accept nodes: rank them, list those that keep a site's bounds, and say what to measure next.

Exit code 1: a node or group failed or was not measured.
"""

import argparse
import json
import sys
from pathlib import Path

from dlbench.analysis import accept_nodes
from dlbench.common import host_lists
from dlbench.pages import page_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="?", type=Path, default=Path("results"), help="folder of the study"
    )
    parser.add_argument(
        "--bounds",
        required=True,
        type=Path,
        metavar="FILE",
        help="what nodes and groups must attain, YAML",
    )
    parser.add_argument(
        "--nodes", default="", metavar="LIST", help="all nodes that must be measured, as n[1-8]"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    wanted = accept_nodes.read_bounds(args.bounds, args.results)
    expected = host_lists.expand_hosts(args.nodes)
    accepted = accept_nodes.accept(accept_nodes.read(args.results), wanted, expected)
    accept_nodes.write(accepted, args.results)
    if args.json:
        print(json.dumps(accept_nodes.values(accepted), allow_nan=False))
        return 0 if accepted.all_passed else 1
    sys.stdout.write(page_text.text(accept_nodes.page(accepted, args.results)))
    if accepted.groups.next:
        print("\nTo be measured next, each size in a block of its own:\n")
        print("\n".join(accept_nodes.next_lines(accepted.groups.next)))
    return 0 if accepted.all_passed else 1
