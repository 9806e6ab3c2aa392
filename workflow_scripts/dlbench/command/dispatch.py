"""Find the command that is meant, parse its arguments, do it, and give its exit code."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from dlbench import Error
from dlbench.command import commands
from dlbench.common import command_line, phrases, terminal

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
USAGE = "usage: dlbench COMMAND [OPTIONS]   dlbench COMMAND --help   dlbench --version"
FOOTER = "Exit codes: 0; 1 if something failed or is not as it should be; 2 for bad input."


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
        from dlbench.common import installation  # the others import less

        print(f"dlbench {installation.version()}")
        return 0
    if name not in commands.names():
        raise Error(
            f"dlbench has no command {name!r}{phrases.did_you_mean(name, commands.names())}; "
            "dlbench --help lists them"
        )
    command = commands.load(name)
    passed_on = []
    if getattr(command, "PASSES_ON", False) and "--" in arguments:
        cut = arguments.index("--")
        arguments, passed_on = arguments[:cut], arguments[cut + 1 :]
    args = parser(name).parse_args(arguments)
    args.passed_on = passed_on
    code = command.run(args) or 0
    sys.stdout.flush()  # so that a closed pipe is noticed here
    return code


def help_text() -> str:
    """All commands by groups, in lines that fit a terminal."""
    lines = [USAGE]
    for folder, group in commands.GROUPS.items():
        for index, (name, summary) in enumerate(group.items()):
            title = "" if index else commands.TITLES[folder]
            lines.append(f"{title:9}{name:15}{summary}")
    return "\n".join([*lines, FOOTER])


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of a command's arguments."""
    command = commands.load(name)
    made = argparse.ArgumentParser(
        prog=f"dlbench {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"%(prog)s {command.USAGE}" if hasattr(command, "USAGE") else None,
    )
    command.add_arguments(made)
    return made
