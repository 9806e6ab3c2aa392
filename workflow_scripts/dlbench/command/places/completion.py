"""Print what a shell needs to complete commands and options: `dlbench completion bash`.

    bash: dlbench completion bash > ~/.local/share/bash-completion/completions/dlbench
    zsh:  dlbench completion zsh > FOLDER/_dlbench, with FOLDER in fpath
    fish: dlbench completion fish > ~/.config/fish/completions/dlbench.fish

Needs the package shtab: `uv run --extra completion dlbench completion bash`.
"""

import argparse
from types import ModuleType

from dlbench import Error
from dlbench.command import commands
from dlbench.common import tools

SHELLS = ("bash", "zsh", "fish")
OF_FILES = ("A", "B", "ARCHIVE", "FILE", "PATH", "STUDY", "TARGET")
OF_FOLDERS = ("DIR", "FOLDER", "PROJECT", "RESULTS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose form is printed")


def run(args: argparse.Namespace) -> None:
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
    for group in commands.GROUPS.values():
        for name, summary in group.items():
            parser = subparsers.add_parser(name, help=summary)
            commands.load(name).add_arguments(parser)
            for action in parser._actions:
                kind = str(action.metavar or action.dest).upper()
                if kind in OF_FILES or action.dest == "configfile":
                    vars(action)["complete"] = shtab.FILE
                elif kind in OF_FOLDERS:
                    vars(action)["complete"] = shtab.DIRECTORY
    return whole
