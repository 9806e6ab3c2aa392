"""Commands about what a study needs: data, environments, a site, its machines."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from types import ModuleType

from dlbench import Error
from dlbench.command import dispatch
from dlbench.command.starting import add_configfile, add_json
from dlbench.common import command_line, own_code, phrases, tools


def add_check_site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", required=True, help="its name or folder, as for Snakemake, or one of profiles/"
    )
    add_configfile(parser)
    parser.add_argument("--no-job", action="store_true", help="start no job on a compute node")
    parser.add_argument(
        "--timeout",
        type=command_line.real(above=0),
        default=600,
        metavar="S",
        help="seconds that job may be queued",
    )
    add_json(parser)


def check_site(args: argparse.Namespace) -> int:
    """Check a site before a campaign, and print what to fix: profile, scheduler, site.yaml, nodes.

    Runs one short job on a compute node, which reports what the node has. Exit code 0 means that
    there is nothing to fix.
    """
    from dlbench.cluster.check_site import print_remarks

    fine = print_remarks(args.profile, args.configfile, not args.no_job, args.timeout, args.json)
    return 0 if fine else 1


def add_baselines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="with a folder for each machine")
    parser.add_argument("--output", default="results/tables", type=Path, help="folder of the table")


def baselines(args: argparse.Namespace) -> None:
    """Collect the baselines of machines into one table, results/tables/baselines.parquet and
    .csv."""
    from dlbench.results import collect_runs

    collect_runs.collect_baselines(args.folder, args.output)


def where(args: argparse.Namespace) -> None:
    """Print the folder that has dlbench's Snakefile, profiles, studies and programs.

    It is the clone, or a folder of the Python in which a wheel was installed.

    Example: snakemake --snakefile "$(dlbench where)/Snakefile" --configfile my_study.yaml
    """
    print(own_code.PROJECT)


def add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", help="as runs; not given: all tables")


def columns(args: argparse.Namespace) -> None:
    """Print what a table has: its columns with their units and meanings."""
    from dlbench.tables import write_reference_pages as reference

    if not args.table:
        print("\n".join(f"{name}: {about}" for name, about in reference.TABLES.items()))
    elif schema := reference.SCHEMAS.get(args.table):
        for column in schema:
            unit = (column.metadata or {}).get(b"unit", b"").decode()
            unit = f" ({unit})" if unit else ""
            print(f"{column.name}{unit}: {reference.meaning(args.table, column)}".rstrip(": "))
    else:
        hint = phrases.did_you_mean(args.table, reference.TABLES)
        raise Error(f"no table {args.table!r}{hint}; there are: {', '.join(reference.TABLES)}")


def add_datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write the catalogue there")
    add_json(parser)


def datasets(args: argparse.Namespace) -> None:
    """List the datasets: what each is, its records and the bytes to fetch.

    With --output it writes the whole catalogue, datasets.md and datasets.json, into a folder.
    """
    from dlbench.data import list_datasets

    if args.output:
        list_datasets.write(args.output)
    elif args.json:
        print(json.dumps(list_datasets.entries()))
    else:
        print("\n".join(list_datasets.lines(list_datasets.entries())))


def add_verify_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="folder with manifest.json, e.g. results/data/digits")


def verify_dataset(args: argparse.Namespace) -> int:
    """Compare the TFRecord shards of a dataset with its manifest.json."""
    from dlbench.data.stores import verify

    problems = verify(args.folder)
    if problems:
        print("\n".join(problems))
        print(
            f"{phrases.counted(len(problems), 'problem')}; the rule convert_dataset rebuilds the "
            f"shards: delete {args.folder}/manifest.json and the damaged shards, and run the "
            "workflow again"
        )
        return 1
    print(f"{args.folder}: all shards are as the manifest says")
    return 0


def add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", type=Path, help="folder with pyproject.toml and uv.lock")
    parser.add_argument("--extra", action="append", default=[], help="also this extra")
    parser.add_argument("--group", action="append", default=[], help="also this group")
    parser.add_argument("--output", type=Path, help="JSON list of what is installed")


def environment(args: argparse.Namespace) -> None:
    """Install a trainer's pinned environment with uv and list its packages.

    Packages that the lock file does not name, or that belong to an extra (Horovod), stay.
    """
    from dlbench.images.make_image import make_environment

    make_environment(args.project, args.extra, args.group, args.output)


def add_kubernetes_job(parser: argparse.ArgumentParser) -> None:
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


def kubernetes_job(args: argparse.Namespace) -> None:
    """Write one run as an indexed Job of Kubernetes, for kubectl apply -f -.

    One pod per node of the run; the workflow's folder, with its environments and results, is on a
    volume that all pods and this machine mount. The run has `launcher: kubernetes` in the config.
    Start this in the workflow's folder; docs/clusters.md has more.
    """
    from dlbench.cluster import write_kubernetes_job
    from dlbench.study import config

    names = [field.name for field in dataclasses.fields(write_kubernetes_job.Place)]
    place = write_kubernetes_job.Place(**{name: getattr(args, name) for name in names})
    settings = config.read("config.yaml", *args.configfile)
    sys.stdout.write(write_kubernetes_job.manifest(settings, args.run_id, place))


SHELLS = ("bash", "zsh", "fish")
OF_FILES = ("A", "B", "ARCHIVE", "FILE", "PATH", "STUDY", "TARGET")
OF_FOLDERS = ("DIR", "FOLDER", "PROJECT", "RESULTS")


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose form is printed")


def completion(args: argparse.Namespace) -> None:
    """Print what a shell needs to complete commands and options: `dlbench completion bash`.

        bash: dlbench completion bash > ~/.local/share/bash-completion/completions/dlbench
        zsh:  dlbench completion zsh > FOLDER/_dlbench, with FOLDER in fpath
        fish: dlbench completion fish > ~/.config/fish/completions/dlbench.fish

    Needs the package shtab: `uv run --extra completion dlbench completion bash`.
    """
    try:
        import shtab
    except ImportError:
        install = tools.install_command("completion")
        raise Error(f"this Python lacks the package shtab; {install} installs it") from None
    print(shtab.complete(whole_parser(shtab), args.shell))


def whole_parser(shtab: ModuleType) -> argparse.ArgumentParser:
    """A parser of all commands, which says where files and where folders are expected."""
    whole = argparse.ArgumentParser(prog="dlbench")
    whole.add_argument("--version", action="store_true", help="print the version")
    subparsers = whole.add_subparsers()
    for _, group in dispatch.GROUPS.values():
        for name, summary in group.items():
            parser = subparsers.add_parser(name, help=summary)
            dispatch.load(name).add_arguments(parser)
            for action in parser._actions:
                kind = str(action.metavar or action.dest).upper()
                if kind in OF_FILES or action.dest == "configfile":
                    vars(action)["complete"] = shtab.FILE
                elif kind in OF_FOLDERS:
                    vars(action)["complete"] = shtab.DIRECTORY
    return whole
