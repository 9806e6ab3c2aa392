"""All commands: their groups, one line about each, and the files that have them.

The file of a command has a docstring, which `--help` prints, and two functions:

    add_arguments(parser): adds its arguments to an argparse parser.
    run(args): does it; returns the exit code, or None for 0. Raises Error for bad input.

and PASSES_ON = True if what is given after -- is for another program; it is `args.passed_on`.
Nothing is imported here: `dlbench --help` is quick, and a command imports its own file only.
"""

import importlib
from types import ModuleType

GROUPS: dict[str, dict[str, str]] = {  # by folder
    "running": {
        "init": "write a study for this machine, and a site.yaml",
        "run": "start the workflow with a study, as snakemake does",
        "status": "which runs are done, running, failed, skipped or stale",
        "retry": "forget failures and start the workflow, for another try",
        "forget": "forget results, so that the next start trains them again",
        "doctor": "what is wrong with a results folder, and what to do",
    },
    "results": {
        "report": "one HTML page of a study's tables and figures",
        "partial": "tables and figures of the runs finished so far",
        "export": "runs as CSV, Parquet or JSON; all as a Parquet dataset",
        "compare": "two campaigns, or one with bounds",
        "history": "many campaigns: since when one is slower, and why",
        "gate": "the newest campaign by those before it, for CI",
        "site": "a website of a history: machines, conditions, changes",
        "accept-nodes": "nodes that keep a site's bounds, what to measure next",
        "import": "logs and results of other programs as tables like ours",
    },
    "archives": {
        "archive": "a finished study as one zip file, to publish",
        "verify": "every digest and record of an archive",
        "rederive": "tables, figures and report of an archive once more",
    },
    "places": {
        "check-site": "what is to be fixed before a campaign on a cluster",
        "baselines": "a table of what machines attain without a model",
        "where": "the folder of the Snakefile, studies and profiles",
        "datasets": "the datasets that there are",
        "verify-dataset": "compare converted shards with their manifest",
        "environment": "install a trainer's pinned environment",
        "kubernetes-job": "one run as an indexed Job of Kubernetes",
        "completion": "completion for bash, zsh or fish",
    },
}
TITLES = {
    "running": "Runs",
    "results": "Results",
    "archives": "Archives",
    "places": "Places",
}
KEYWORDS = ("import",)  # of Python, which no module can be named as


def names() -> list[str]:
    """The names of all commands."""
    return [name for group in GROUPS.values() for name in group]


def module_name(name: str) -> str:
    """The module of a command."""
    (folder,) = (folder for folder, group in GROUPS.items() if name in group)
    file = name.replace("-", "_") + ("_" if name in KEYWORDS else "")
    return f"dlbench.command.{folder}.{file}"


def load(name: str) -> ModuleType:
    """Import the file of a command."""
    return importlib.import_module(module_name(name))
