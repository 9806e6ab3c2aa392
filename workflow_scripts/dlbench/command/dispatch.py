"""Find the command that is meant, parse its arguments, do it, and give its exit code.

The command `accept-nodes` is the function `accept_nodes(args)` of its group's file: its docstring
is what `--help` prints; it returns the exit code, or None for 0, and raises Error for bad input.
`add_accept_nodes(parser)` adds its arguments, if it has any.
Nothing else is imported here: `dlbench --help` is quick, and a command imports what it needs.
"""

import argparse
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlbench import Error
from dlbench.common import command_line, phrases, terminal

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
USAGE = "usage: dlbench COMMAND [OPTIONS]   dlbench COMMAND --help   dlbench --version"
FOOTER = "Exit codes: 0; 1 if something failed or is not as it should be; 2 for bad input."
# The groups of commands, by their file: (title, {command: one line about it}).
GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "running": (
        "Runs",
        {
            "init": "write a study for this machine, and a site.yaml",
            "run": "start the workflow with a study, as snakemake does",
            "status": "which runs are done, running, failed, skipped or stale",
            "retry": "forget failures and start the workflow, for another try",
            "forget": "forget results, so that the next start trains them again",
            "doctor": "what is wrong with a results folder, and what to do",
        },
    ),
    "results": (
        "Results",
        {
            "report": "one HTML page of a study's tables and figures",
            "partial": "tables and figures of the runs finished so far",
            "export": "runs as CSV, Parquet or JSON; all as a Parquet dataset",
            "compare": "two campaigns, or one with bounds",
            "history": "many campaigns: since when one is slower, and why",
            "gate": "the newest campaign by those before it, for CI",
            "site": "a website of a history: machines, conditions, changes",
            "accept-nodes": "nodes that keep a site's bounds, and those that do not",
            "import": "logs and results of other programs as tables like ours",
        },
    ),
    "archives": (
        "Archives",
        {
            "archive": "a finished study as one zip file, to publish",
            "verify": "every digest and record of an archive",
            "rederive": "tables, figures and report of an archive once more",
        },
    ),
    "places": (
        "Places",
        {
            "check-site": "what is to be fixed before a campaign on a cluster",
            "baselines": "a table of what machines attain without a model",
            "where": "the folder of the Snakefile, studies and profiles",
            "columns": "the columns of a table, with units and meanings",
            "datasets": "the datasets that there are",
            "verify-dataset": "compare converted shards with their manifest",
            "environment": "install a trainer's pinned environment",
            "kubernetes-job": "one run as an indexed Job of Kubernetes",
            "completion": "completion for bash, zsh or fish",
        },
    ),
}
KEYWORDS = ("import",)  # of Python, which no function can be named as
# What rules start, in steps.py; a user has no need of it.
STEPS = (
    *("fetch-dataset", "adopt-dataset", "convert-pictures", "make-image", "prepare-image"),
    *("report-images", "start-session", "find-batch", "parse-run"),
    *("add-campaign", "analyse-history"),
)
# Of commands that start Snakemake: what they take. After -- all is for Snakemake, but of `run`.
USAGES = {
    "run": "[STUDY [TARGETS AND OPTIONS OF SNAKEMAKE]]",
    "retry": "[OPTIONS] [RUN_ID ...] [-- OPTIONS OF SNAKEMAKE]",
    "history": "[OPTIONS] [-- OPTIONS OF SNAKEMAKE]",
}
PASSES_ON = ("retry", "history", "find-batch")


class Command(NamedTuple):
    """The functions of a command."""

    run: Callable[[argparse.Namespace], int | None]
    add_arguments: Callable[[argparse.ArgumentParser], None]


def main(given: Sequence[str] | None = None) -> int:
    """Do what a command line says, that of this process if none is given; return its exit code.

    An Error or OSError ends it with one line. Any other exception is a bug and keeps its traceback.
    """
    command_line.name_user()
    name, *arguments = sys.argv[1:] if given is None else given or ["--help"]
    try:
        return _do(name, arguments)
    except BrokenPipeError:  # as of `| head`; Python would complain once more at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Error, OSError) as error:
        print(f"error: {terminal.plain(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        gc.freeze()  # otherwise Python would traverse all imported objects once more at exit


def _do(name, arguments):
    if name in ("-h", "--help"):
        print(help_text())
        return 0
    if name == "--version":
        from dlbench.common import own_code  # the others import less

        print(f"dlbench {own_code.version()}")
        return 0
    if name not in (*names(), *STEPS):
        raise Error(
            f"dlbench has no command {name!r}{phrases.did_you_mean(name, names())}; "
            "dlbench --help lists them"
        )
    passed_on = []
    if name in PASSES_ON and "--" in arguments:
        cut = arguments.index("--")
        arguments, passed_on = arguments[:cut], arguments[cut + 1 :]
    args = parser(name).parse_args(arguments)
    args.passed_on = passed_on
    code = load(name).run(args) or 0
    sys.stdout.flush()  # so that a closed pipe is noticed here
    return code


def names() -> list[str]:
    """The names of all commands that users start."""
    return [name for _, group in GROUPS.values() for name in group]


def load(name: str) -> Command:
    """Import the file of a command, and find its functions."""
    file = next((file for file, (_, group) in GROUPS.items() if name in group), "steps")
    module = importlib.import_module(f"dlbench.command.{file}")
    function = name.replace("-", "_") + ("_" if name in KEYWORDS else "")
    return Command(
        getattr(module, function), getattr(module, f"add_{function}", lambda parser: None)
    )


def help_text() -> str:
    """All commands by groups, in lines that fit a terminal."""
    lines = [USAGE]
    for title, group in GROUPS.values():
        for index, (name, summary) in enumerate(group.items()):
            lines.append(f"{'' if index else title:9}{name:15}{summary}")
    return "\n".join([*lines, FOOTER])


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of a command's arguments."""
    command = load(name)
    made = argparse.ArgumentParser(
        prog=f"dlbench {name}",
        description=inspect.getdoc(command.run),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"%(prog)s {USAGES[name]}" if name in USAGES else None,
    )
    command.add_arguments(made)
    return made


COMMANDS_PAGE = "docs/commands.md"
MOST_CHOICES = 8  # that are listed with an option
PAGE_HEAD = """# Commands

All commands of `dlbench`, with their arguments and exit codes, made by
`workflow_scripts/write_reference_pages.py`. `dlbench COMMAND --help` prints the same. With `uv`
every command is `uv run dlbench COMMAND`; `dlbench completion` says how bash, zsh or fish complete
commands and options.

| Exit code | |
| --- | --- |
| 0 | done; nothing is wrong |
| 1 | something failed, or is not as it should be |
| 2 | bad input: the message says what was expected, what was found and what is likely wrong |
| 130 | interrupted by Ctrl-C |

Where a command has further codes, its section says so. `run`, `retry` and `history` start Snakemake
and return its exit code.
"""


def commands_page() -> str:
    """All commands as Markdown, by groups, in the order of `dlbench --help`."""
    sections = [PAGE_HEAD]
    for title, group in GROUPS.values():
        sections.append(f"## {title}\n")
        sections += [_section(name) for name in group]
    sections.append("Next: [campaigns.md](campaigns.md), the commands of a campaign by example.\n")
    return "\n".join(sections)


def _section(name):
    command = parser(name)
    arguments = [action for action in command._actions if action.dest != "help"]
    rows = [f"| `{_argument(each)}` | {_meaning(command, each)} |" for each in arguments]
    head = ["| Argument | Meaning |", "| --- | --- |"] if rows else []
    usage = USAGES.get(name) or _usage(arguments)
    title = f"### {name}\n\n`dlbench {name} {usage}`\n\n{command.description}\n"
    return "\n".join([title, *head, *rows, ""])


def _usage(arguments):
    """What a command takes, its options as one word."""
    required = [_argument(each) for each in arguments if each.option_strings and each.required]
    places = [_argument(each) for each in arguments if not each.option_strings]
    options = ["[OPTIONS]"] if len(arguments) > len(required) + len(places) else []
    return " ".join([*places, *required, *options])


def _argument(action):
    """An argument with its values, as in `--configfile FILE ...`."""
    chosen = action.choices and len(action.choices) <= MOST_CHOICES
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if chosen else action.dest.upper()
    )
    values = {0: "", "?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}
    values[argparse.REMAINDER] = f"{value} ..."
    named = [action.option_strings[0]] if action.option_strings else []
    return " ".join(filter(None, [*named, values.get(action.nargs, value)]))


def _meaning(parser, action):
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    text = text.replace("|", "\\|")
    if action.choices and len(action.choices) > MOST_CHOICES:
        text += f" (of: {', '.join(map(str, action.choices))})"
    return text.strip()
