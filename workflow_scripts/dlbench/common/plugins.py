"""Plugins: models, datasets and so on, one file each in `models/`, `datasets/` and so on.

A new file is a new plugin; there is no list to edit. Configs and command lines use the names of the
files. A file with MANY = True is any number of plugins: text.py is also text_books and
text_letters; images.py is those that a config names. A file with VARIANTS, of a kind in FAMILIES,
is a family: the plugins are those that this dictionary names, each with the constants that it has
there. A kind of plugins is the name of such a folder, or the end of its path: each framework has
models of its own, so `pytorch/models` are those of one framework. A file with CONSTANTS_OF =
"keras/models" has the constants of the file of its name there, too.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from dlbench import Error
from dlbench.common import phrases

LIBRARY = Path(__file__).parents[1]
# Kinds whose files may have VARIANTS.
FAMILIES = ("models", "importers", "launchers", "runtimes", "transports")
# Functions of a family that get the constants of a plugin.
TOLD = ("build", "recognise", "read", "prepare", "prepared", "command", "cleanup")
# The user's folders, global as sys.path is: set when a program starts, read by all functions here.
# Keys are the last parts of kinds, because a folder of models may have those of any framework.
_user_folders: dict[str, Path] = {}
# Likewise, the user's names for what a file of the library defines: {kind: {name: file's name}}.
_user_names: dict[str, dict[str, str]] = {}


class UnknownName(Error):
    """There is no plugin of this name."""


def add_user_folder(kind: str, folder: str | Path | None = None) -> None:
    """Search a folder of the user for plugins of a kind, too; None: the library only.

    Raises Error: the folder does not exist, or a file in it has a name that the library uses.
    """
    _user_folders.pop(_last_part(kind), None)
    _forget_found()
    if folder is None:
        return
    folder = Path(folder)
    if not folder.is_dir():
        raise Error(f"{folder}: expected a folder with {kind} of your own, found none")
    built_in = [path.parent for path in LIBRARY.glob(f"**/{kind}/__init__.py")]
    taken = dict(pair for part in built_in for pair in _named(_files(part), kind))
    for name, file in _named(_files(folder), kind):
        if name in taken:
            raise Error(
                f"{file}: {name} is in {kind}/{taken[name].name} of ours; choose another name"
            )
    _user_folders[_last_part(kind)] = folder


def user_folder(kind: str) -> Path | None:
    """The folder of the user with plugins of a kind; None if there is none."""
    return _user_folders.get(_last_part(kind))


def set_user_names(kind: str, file: str, given: Iterable[str]) -> None:
    """Let these names, and no others as before, be names for what a file of the library defines.

    Raises Error: a file of the kind has one of the names.
    """
    _user_names.pop(kind, None)
    _forget_found()
    for name in given:
        if is_known(kind, name):
            raise Error(
                f"{name}: the file {kind}/{path(kind, name).name} has this name; choose another one"
            )
    _user_names[kind] = dict.fromkeys(given, file)
    _forget_found()


def _forget_found():
    for cached in (_paths, names, path, load, constants, _constants):
        cached.cache_clear()


@functools.cache
def folder_of(kind: str) -> Path:
    """The folder of the library with the plugins of a kind, in whichever room it is.

    Raises Error: there is none, or there are several.
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
    file = _paths(kind).get(name) or _file_of_many(kind, name)
    if file is None:
        known = sorted([*names(kind), *_user_names.get(kind, ())])
        raise UnknownName(
            f"no file {_last_part(kind)}/{name}.py"
            f"{phrases.did_you_mean(name, known)}; there are: {', '.join(known)}"
        )
    return file


def is_known(kind: str, name: str) -> bool:
    """Whether a file defines `name`."""
    try:
        return bool(path(kind, name))
    except UnknownName:
        return False


def _file_of_many(kind, name):
    """The file of a name that users give, or with MANY = True of which it is one; or None."""
    if of_user := _user_names.get(kind, {}).get(str(name)):
        return _paths(kind)[of_user]
    first, _, rest = str(name).partition("_")
    many = rest and first in _paths(kind) and constants(kind, first).get("MANY")
    return _paths(kind)[first] if many else None


@functools.cache
def load(kind: str, name: str) -> ModuleType:
    """Import and return the module that defines `name`."""
    file = path(kind, name)
    if is_builtin(kind, name):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        module = importlib.import_module(".".join(("dlbench", *parts)))
    else:
        spec = importlib.util.spec_from_file_location(f"dlbench.{_last_part(kind)}.{name}", file)
        if not spec or not spec.loader:  # only if its name did not end in .py
            raise UnknownName(f"{file} is no file of Python")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    known = constants(kind, name)
    if _last_part(kind) not in FAMILIES or not {"VARIANTS", "CONSTANTS_OF"} & known.keys():
        return module
    variant = ModuleType(module.__name__, module.__doc__)
    told = [(key, vars(module)[key]) for key in TOLD if key in vars(module)]
    given = {**known, "NAME": name}
    of_variant = {key: functools.partial(function, constants=given) for key, function in told}
    vars(variant).update(vars(module) | {**known, **of_variant})
    return variant


def is_builtin(kind: str, name: str) -> bool:
    """Whether the library defines `name`, and not a file of the user."""
    return path(kind, name).is_relative_to(folder_of(kind))


@functools.cache
def _paths(kind):
    """The file of each name of a kind."""
    of_user = user_folder(kind)
    user_files = _files(of_user) if of_user else []
    paths = {}
    for name, file in _named([*_files(folder_of(kind)), *user_files], kind):
        if name in paths:
            raise Error(f"{file}: {paths[name]} has the same name, {name}; rename one of them")
        paths[name] = file
    return paths


def _named(files, kind):
    """(name, file) of all plugins that files define."""
    for file in files:
        variants = _constants(file).get("VARIANTS") if _last_part(kind) in FAMILIES else None
        yield from ((name, file) for name in variants or (file.stem,))


def _last_part(kind):
    return kind.rpartition("/")[2]


def _files(folder):
    return [p for p in folder.glob("*.py") if not p.stem.startswith("_")]


def parse_file(file: Path) -> ast.Module:
    """The syntax tree of a file of the library or of the user.

    Raises Error: the file is not valid Python.
    """
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise Error(f"{file}, line {error.lineno}: not valid Python: {error.msg}") from error


@functools.cache
def constants(kind: str, name: str) -> Mapping[str, Any]:
    """The literal constants in the file of `name`, read without importing it.

    So the workflow reads the caption of a figure without importing Matplotlib.
    """
    values = _constants(path(kind, name))
    variants = values.get("VARIANTS", {}) if _last_part(kind) in FAMILIES else {}
    return MappingProxyType(values | variants.get(name, {}))  # all callers share it


@functools.cache
def _constants(file):
    values = {}
    for node in parse_file(file).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not node.value:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            with contextlib.suppress(ValueError):  # the value is computed
                values[target.id] = ast.literal_eval(node.value)
    if others := values.get("CONSTANTS_OF"):
        return _constants(folder_of(others) / file.name) | values
    return values
