"""Commands and programs of ours in the process of a test, without the seconds of a start.

What is about a start itself (signals, terminals, missing packages) starts a process instead;
tests/unit/house starts each of them once.
"""

import contextlib
import io
import runpy
import subprocess
import sys
from unittest import mock

from dlbench.command import dispatch
from support.machines.paths import REPOSITORY


def dlbench(*arguments):
    """Do what `dlbench ARGUMENTS` does. Returns a subprocess.CompletedProcess with texts."""
    words = [str(word) for word in arguments]
    return _finished(words, lambda: dispatch.main(words))


def program(name, *arguments):
    """Do what `python workflow_scripts/NAME ARGUMENTS` does. Returns as `dlbench` does."""
    path = str(REPOSITORY / "workflow_scripts" / name)
    words = [path, *map(str, arguments)]
    with mock.patch.object(sys, "argv", words):
        return _finished(words, lambda: runpy.run_path(path, run_name="__main__") and None)


def _finished(words, main):
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
    return subprocess.CompletedProcess(words, code or 0, output.getvalue(), errors.getvalue())
