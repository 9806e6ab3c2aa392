"""Things found by their name: one file each in `models/`, `datasets/` and so on.

Adding a file adds the thing; there is no list to edit. The file names are the
names used in configs and on command lines.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
from pathlib import Path

from dlbench import Error
from dlbench.common import phrases

LIBRARY = Path(__file__).parents[1]
_own = {}  # folders of the user, by kind


class UnknownName(Error):
    """A name for which there is no file."""


def use_folder(kind, folder=None):
    """Find things of one kind in a folder of the user's too, or no longer where it is None.

    Raises:
        Error: there is no such folder, or it has a name that is one of ours.
    """
    _own.pop(kind, None)
    for cached in (names, load, constants):
        cached.cache_clear()
    if folder is None:
        return
    folder = Path(folder)
    if not folder.is_dir():
        raise Error(f"{folder}: expected a folder with {kind} of your own, found none")
    taken = {p.stem for p in _files(ours(kind))}
    for file in _files(folder):
        if file.stem in taken:
            raise Error(f"{file}: there is a file {kind}/{file.name} of ours; choose another name")
    _own[kind] = folder


@functools.cache
def ours(kind):
    """The folder of the library with things of one kind, in whichever room it lies."""
    return next(LIBRARY.glob(f"**/{kind}/__init__.py")).parent


@functools.cache
def names(kind):
    """All names of one kind, e.g. `names("models")`, in alphabetical order."""
    return sorted(p.stem for folder in _folders(kind) for p in _files(folder))


def path(kind, name):
    """The file that defines `name`.

    Raises:
        UnknownName: there is none; the message has the nearest valid name.
    """
    if name not in names(kind):
        raise UnknownName(
            f"no file {kind}/{name}.py"
            f"{phrases.nearest(name, names(kind))}; there are: {', '.join(names(kind))}"
        )
    return next(p for folder in _folders(kind) if (p := folder / f"{name}.py").is_file())


@functools.cache
def load(kind, name):
    """Import and return the module that defines `name`."""
    file = path(kind, name)
    if file.parent == ours(kind):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        return importlib.import_module(".".join(("dlbench", *parts)))
    spec = importlib.util.spec_from_file_location(f"dlbench.{kind}.{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folders(kind):
    return [ours(kind), *([_own[kind]] if kind in _own else [])]


def _files(folder):
    return [p for p in folder.glob("*.py") if not p.stem.startswith("_")]


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
    values = {}
    for node in parsed(path(kind, name)).body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign) and node.value:
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name):
            with contextlib.suppress(ValueError):  # not a constant
                values[target.id] = ast.literal_eval(node.value)
    return values
