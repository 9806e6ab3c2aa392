"""Things found by their name: one file each in `models/`, `datasets/` and so on.

Adding a file adds the thing; there is no list to edit. The file names are the
names used in configs and on command lines.
"""

import ast
import contextlib
import difflib
import functools
import importlib
from pathlib import Path

from dlbench import Error

LIBRARY = Path(__file__).parent


class UnknownName(Error):
    """A name for which there is no file."""


@functools.cache
def names(kind):
    """All names of one kind, e.g. `names("models")`, in alphabetical order."""
    return sorted(p.stem for p in (LIBRARY / kind).glob("*.py") if p.stem != "__init__")


def path(kind, name):
    """The file that defines `name`.

    Raises:
        UnknownName: there is none; the message has the nearest valid name.
    """
    if name not in names(kind):
        raise UnknownName(
            f"no file {kind}/{name}.py"
            f"{nearest(name, names(kind))}; there are: {', '.join(names(kind))}"
        )
    return LIBRARY / kind / f"{name}.py"


@functools.cache
def load(kind, name):
    """Import and return the module that defines `name`."""
    path(kind, name)
    return importlib.import_module(f"dlbench.{kind}.{name}")


def parsed(file):
    """The syntax tree of one of our files, which a user may have added.

    Raises:
        Error: it is not valid Python.
    """
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise Error(f"{file}, line {error.lineno}: not valid Python: {error.msg}") from error


@functools.cache
def constants(kind, name):
    """The plain constants that the file of `name` defines, read without importing it.

    So the workflow asks a figure for its caption without loading Matplotlib.
    """
    found = {}
    for node in parsed(path(kind, name)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):  # not a constant
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def nearest(name, valid):
    """A hint for error messages: `" (did you mean 'x'?)"`, or `""` where nothing is near."""
    near = difflib.get_close_matches(str(name), [str(v) for v in valid], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
