"""The page of all commands, docs/commands.md, from their docstrings and parsers."""

import argparse

from dlbench.command import dispatch

PATH = "docs/commands.md"
MOST_CHOICES = 8  # that are listed with an option
HEAD = """# Commands

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


def page() -> str:
    """All commands as Markdown, by groups, in the order of `dlbench --help`."""
    sections = [HEAD]
    for title, group in dispatch.GROUPS.values():
        sections.append(f"## {title}\n")
        sections += [_section(name) for name in group]
    sections.append("Next: [campaigns.md](campaigns.md), the commands of a campaign by example.\n")
    return "\n".join(sections)


def _section(name):
    parser = dispatch.parser(name)
    arguments = [action for action in parser._actions if action.dest != "help"]
    rows = [f"| `{_argument(each)}` | {_meaning(parser, each)} |" for each in arguments]
    head = ["| Argument | Meaning |", "| --- | --- |"] if rows else []
    usage = dispatch.USAGES.get(name) or _usage(arguments)
    title = f"### {name}\n\n`dlbench {name} {usage}`\n\n{parser.description}\n"
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
