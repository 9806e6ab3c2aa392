"""Things found by their name: one file each in `models/`, `datasets/` and so on.

Adding a file adds the thing; there is no list to edit. Configs and command
lines use the names of the files. A file that says MANY = True stands for any
number of things: text.py for text_books and text_letters, too. A kind is the
name of such a folder, or its end: as each framework has models of its own,
`tensorflow/models` names those of one framework.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from dlbench import Error
from dlbench.common import phrases

LIBRARY = Path(__file__).parents[1]
# Kinds whose files may lie one folder deeper; that folder's name says what they have in common.
SORTED = ("models", "figures", "importers")
# Where to look besides, as sys.path is: set once where a program starts, read by all that names a
# file. By the last word of a kind, for models are of any framework.
_user_folders: dict[str, Path] = {}


class UnknownName(Error):
    """No file has this name."""


def add_user_folder(kind: str, folder: str | Path | None = None) -> None:
    """Find things of a kind in a folder of the user, too; None: in the library only.

    Raises:
        Error: the folder does not exist, or a file in it has a name that the library uses.
    """
    _user_folders.pop(_last_word(kind), None)
    for cached in (_paths, names, path, load, constants):
        cached.cache_clear()
    if folder is None:
        return
    folder = Path(folder)
    if not folder.is_dir():
        raise Error(f"{folder}: expected a folder with {kind} of your own, found none")
    ours = [path.parent for path in LIBRARY.glob(f"**/{kind}/__init__.py")]
    taken = {p.stem for part in ours for p in _files_of_ours(part)}
    for file in _files(folder):
        if file.stem in taken:
            raise Error(f"{file}: there is a file {kind}/{file.name} of ours; choose another name")
    _user_folders[_last_word(kind)] = folder


@functools.cache
def folder_of(kind: str) -> Path:
    """The folder of the library with things of a kind, in whichever room it lies.

    Raises:
        Error: there is none, or there are several.
    """
    folders = [path.parent for path in LIBRARY.glob(f"**/{kind}/__init__.py")]
    if len(folders) != 1:
        places = ", ".join(sorted(str(folder.relative_to(LIBRARY)) for folder in folders))
        raise Error(f"expected one folder {kind} in the library, found {places or 'none'}")
    return folders[0]


@functools.cache
def names(kind: str) -> list[str]:
    """All names of a kind, e.g. `names("models")`, in alphabetical order."""
    return sorted(_paths(kind))


@functools.cache
def path(kind: str, name: str) -> Path:
    """The file that defines `name`.

    Raises:
        UnknownName: no file does; the message has the most similar valid name.
        Error: two files of the kind have one name.
    """
    file = _paths(kind).get(name) or _of_many(kind, name)
    if file is None:
        raise UnknownName(
            f"no file {_last_word(kind)}/{name}.py"
            f"{phrases.did_you_mean(name, names(kind))}; there are: {', '.join(names(kind))}"
        )
    return file


def is_known(kind: str, name: str) -> bool:
    """Whether a file defines `name`."""
    try:
        return bool(path(kind, name))
    except UnknownName:
        return False


def _of_many(kind, name):
    """The file for many things that a name begins with, or None."""
    first, _, own = str(name).partition("_")
    many = own and first in _paths(kind) and constants(kind, first).get("MANY")
    return _paths(kind)[first] if many else None


@functools.cache
def load(kind: str, name: str) -> ModuleType:
    """Import and return the module that defines `name`."""
    file = path(kind, name)
    if is_builtin(kind, name):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        return importlib.import_module(".".join(("dlbench", *parts)))
    spec = importlib.util.spec_from_file_location(f"dlbench.{_last_word(kind)}.{name}", file)
    if not spec or not spec.loader:  # only if its name did not end in .py
        raise UnknownName(f"{file} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_builtin(kind: str, name: str) -> bool:
    """Whether the library defines `name`, and not a file of the user."""
    return path(kind, name).is_relative_to(folder_of(kind))


@functools.cache
def _paths(kind):
    """The file of each name of a kind."""
    users = _user_folders.get(_last_word(kind))
    paths = {}
    for file in (*_files_of_ours(folder_of(kind)), *(_files(users) if users else ())):
        if file.stem in paths:
            raise Error(f"{file}: {paths[file.stem]} has the same name; rename one of them")
        paths[file.stem] = file
    return paths


def _last_word(kind):
    return kind.rpartition("/")[2]


def _files_of_ours(folder):
    """Files of things in a folder of the library, and in the folders that sort them."""
    inside = [part for part in folder.iterdir() if part.is_dir()] if folder.name in SORTED else []
    return [file for part in (folder, *inside) for file in _files(part)]


def _files(folder):
    return [p for p in folder.glob("*.py") if not p.stem.startswith("_")]


def parse_file(file: Path) -> ast.Module:
    """The syntax tree of a file of the library or of the user.

    Raises:
        Error: the file is not valid Python.
    """
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise Error(f"{file}, line {error.lineno}: not valid Python: {error.msg}") from error


@functools.cache
def constants(kind: str, name: str) -> dict[str, Any]:
    """The plain constants that the file of `name` defines, read without importing it.

    So the workflow reads the caption of a figure without loading Matplotlib.
    """
    values = {}
    for node in parse_file(path(kind, name)).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not node.value:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            with contextlib.suppress(ValueError):  # the value is computed
                values[target.id] = ast.literal_eval(node.value)
    return values
