"""Commands and programs of ours in the process of a test, without the seconds of a start.

What is about a start itself (signals, terminals, missing packages) starts a process instead;
tests/unit/house starts each of them once.
"""

import contextlib
import io
import os
import runpy
import sys
from typing import NamedTuple
from unittest import mock

from dlbench.command import dispatch
from support.machines.paths import REPOSITORY


class Finished(NamedTuple):
    """How a command ended: as a subprocess.CompletedProcess, or it became another program.

    Attributes:
        became: the words of os.execv, which replaces a process; None without.
    """

    returncode: int
    stdout: str
    stderr: str
    became: list | None = None


class Replaced(BaseException):
    """This process would have been replaced by another program."""


def dlbench(*arguments):
    return _finished(lambda: dispatch.main([str(word) for word in arguments]))


def program(name, *arguments):
    """Do what `python workflow_scripts/NAME ARGUMENTS` does."""
    path = str(REPOSITORY / "workflow_scripts" / name)
    with mock.patch.object(sys, "argv", [path, *map(str, arguments)]):
        return _finished(lambda: runpy.run_path(path, run_name="__main__") and None)


def _finished(main):
    output, errors, became = io.StringIO(), io.StringIO(), None
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch.dict(os.environ),  # what it changes there ends with it
        mock.patch.object(os, "execv", side_effect=lambda _, words: _replace(words)),
    ):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
        except Replaced as end:
            code, became = 0, end.args[0]
    return Finished(code or 0, output.getvalue(), errors.getvalue(), became)


def _replace(words):
    raise Replaced(words)
