"""Accept nodes: rank them, list those that keep a site's bounds, and say what to measure next.

Exit code 1: a node or group failed or was not measured.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlbench import Error
from dlbench.archive import bag, verify_archive
from dlbench.common import host_lists
from dlbench.common.files import atomic_write, sha256
from dlbench.comparison import accept_nodes, acceptance, certificate
from dlbench.pages import page_html, page_text

TABLES = ("results/tables/runs.parquet", "results/tables/baselines.parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path("results"),
        help="folder of the study, or its archive",
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
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE.html",
        help="write a page on what passed, against what, and the digest of the archive",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    if args.certificate and not args.results.is_file():
        raise Error(
            f"--certificate: expected an archive of the results, found {args.results}; `snakemake "
            "archive` makes one"
        )
    with _results(args.results) as (folder, files):
        wanted = accept_nodes.read_bounds(args.bounds, folder)
        expected = host_lists.expand_hosts(args.nodes)
        results = accept_nodes.read(folder)
        accepted = accept_nodes.accept(results, wanted, expected)
        if args.certificate:
            kept = acceptance.by_bound(wanted, results, expected)
            _write_certificate(args, accepted, kept, certificate.facts(folder), files)
    if args.results.is_dir():
        accept_nodes.write(accepted, args.results)
    if args.json:
        print(json.dumps(accept_nodes.values(accepted), allow_nan=False))
        return 0 if accepted.all_passed else 1
    sys.stdout.write(page_text.text(accept_nodes.page(accepted, args.results)))
    if accepted.step.groups:
        print("\nTo be measured next, each size in a block of its own:\n")
        print("\n".join(accept_nodes.next_lines(accepted.step.groups)))
    return 0 if accepted.all_passed else 1


@contextmanager
def _results(path: Path) -> Iterator[tuple[Path, int]]:
    """The results folder at a path, or a temporary one of an archive's, which is verified.

    Yields:
        The folder, and how many files of the archive were compared with their digests.
    """
    if not path.is_file():
        yield path, 0
        return
    with verify_archive.open_bag(path) as opened, tempfile.TemporaryDirectory() as place:
        if problems := verify_archive.problems(opened):
            raise Error("\n".join((f"{path}: damaged:", *verify_archive.summarise(problems))))
        for name in TABLES:
            if name not in opened.payload:
                continue
            target = Path(place, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"".join(opened.blocks(f"{bag.PAYLOAD}/{name}")))
        yield Path(place, "results"), len(opened.payload)


def _write_certificate(args, accepted, kept, known, files):
    evidence = certificate.Evidence(
        archive=args.results.name,
        archive_sha256=sha256(args.results),
        files=files,
        bounds=args.bounds.name,
        bounds_sha256=sha256(args.bounds),
        nodes=args.nodes,
    )
    page = certificate.page(accepted, kept, known, evidence)
    with atomic_write(args.certificate) as part:
        part.write_text(page_html.html_page(page), encoding="utf-8")
    print(f"{args.certificate}: {page.lead}", file=sys.stderr)
