"""The files of this project that a program executes, and the digest of their content.

Rules list these files as inputs and records have the digest, so that a changed file reruns the
jobs that execute it and no others. Imports are found in the source. The caller names the plugins
that the program loads, e.g. the model of a run.

- A file with only a docstring executes nothing: it is left out.
- The digest is that of the syntax trees and equal on all versions of Python: comments, docstrings
  and layout do not count.
- In the file of a dataset the values that only describe it do not count: DESCRIPTIONS, and the
  `urls` of a file whose SHA-256 is given, because every address then has the same bytes.

Whether dlbench is a clone or was installed from a wheel is here, too. pip puts a wheel's files
beside a folder `dlbench-VERSION.dist-info`, whose RECORD has their digests (the Python packaging
specification "Recording installed projects").
"""

import ast
import base64
import csv
import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import __version__
from dlbench.common import plugins
from dlbench.common.files import atomic_write

PROGRAMS = Path(__file__).parents[2]
PROJECT = PROGRAMS.parent  # the folder of the Snakefile
_RESOLVED = str(PROJECT.resolve())
SAVED_DIGESTS = Path("results/code")  # a list of files for each digest
DESCRIPTIONS = (
    "TITLE",
    "AUTHOR",
    "DESCRIPTION",
    "LICENCE",
    "CITATION",
    "HOMEPAGE",
    "TERMS",
    "MIRRORS",
    "BYTES_PER_TOKEN",
)
LOOKS = (".css", ".jinja", ".js")
SHOWN = 12  # hexadecimal digits of a digest
SPARED_FIELDS = ("ctx", "kind")  # of a node: its position implies ctx, and u"" equals ""


def in_project_folder() -> bool:
    """Whether the working directory is the project's folder, not that of a workflow around it."""
    return os.getcwd() == _RESOLVED  # a cheap comparison: it is called for each run


def project_path(name: str | Path) -> Path:
    """The path of a file of the project for a process that starts in the working directory.

    It is relative in the project's folder, and absolute in another one, as if a workflow uses this
    one as a module.
    """
    return Path(name) if in_project_folder() else PROJECT / name


def looks(*rooms: str) -> list[str]:
    """The templates, style sheets and scripts of some rooms of the library."""
    folders = [project_path(f"workflow_scripts/dlbench/{room}") for room in rooms]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.*"))]
    return [str(path) for path in paths if path.suffix in LOOKS]


def user_or_project_path(name: str | Path) -> Path:
    """The path of a file that a config names: the user's file if it exists, else the project's."""
    return Path(name) if Path(name).exists() else project_path(name)


def search_hint(name: str | Path) -> str:
    """The end of a message about a missing path of a config: in which folder it was searched.

    "" if the working directory is the project's folder.
    """
    if in_project_folder() or Path(name).is_absolute():
        return ""
    hint = f" (paths lead from the working directory, {Path.cwd()}"
    if (PROJECT / name).exists():
        hint += f"; dlbench's own folder has {PROJECT / name}: name that if it is meant"
    return f"{hint})"


def missing_packages() -> list[str]:
    """The packages that pyproject.toml requires and this Python lacks."""
    import tomllib  # Python 3.10 lacks it, which may be the Python of an image

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]}
    needed = sorted(names - {"uv"})  # which is not of a Python: tools.find_uv
    return [name for name in needed if not any(metadata.Distribution.discover(name=name))]


def executed_files(
    program: str, *named: str | Path, without: Iterable[Path] = frozenset()
) -> list[str]:
    """A program, and every file of the library that it or a file named here imports.

    Args:
        program: name of a program in workflow_scripts/, with its suffix.
        named: paths of plugins that the program loads.
        without: paths of files that are left out, with the files that only they import.

    Returns:
        Sorted paths: relative to the folder of the Snakefile, or absolute for files elsewhere.

    Raises Error: a file is not valid Python.
    """
    return list(_executed((PROGRAMS / program, *map(Path, named)), frozenset(without)))


def digest(paths: Iterable[str]) -> str:
    """SHA-256 of the names and syntax trees of files, as 64 hexadecimal digits.

    Raises Error: a file is not valid Python.
    """
    return _digest_of_list(_names_and_digests(paths))


def save_digests(paths: Iterable[str]) -> None:
    """Save the digest of each file's syntax tree for `changed_files`."""
    listed = _names_and_digests(paths)
    path = _list_of(_digest_of_list(listed))
    if not path.exists():
        with atomic_write(path) as part:
            part.write_text("".join(f"{sha256}  {name}\n" for name, sha256 in listed))


def changed_files(before: str, paths: Iterable[str]) -> list[str]:
    """Names of the files that were changed, added or removed since `before`, a digest.

    The list is empty if no list of files was saved for that digest.
    """
    try:
        lines = _list_of(before).read_text().splitlines()
    except OSError:
        return []
    was = {tuple(reversed(line.split("  ", 1))) for line in lines}
    return sorted({name for name, _ in was ^ set(_names_and_digests(paths))})


def _list_of(digest):
    """The path of the saved list of files of a digest; older lists have digests of bytes."""
    return SAVED_DIGESTS / f"{digest}.trees.txt"


def _names_and_digests(paths):
    """(name, digest) of files; the name of a user's file, which may be moved, has no folder."""
    return [(Path(p).name if Path(p).is_absolute() else p, _digest(p)) for p in paths]


def _digest_of_list(listed):
    lines = (f"{name}\0{sha256}\n" for name, sha256 in listed)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _digest(path):
    return _digest_of_tree(PROGRAMS.parent / path)


@functools.cache
def _digest_of_tree(path):
    """SHA-256 of the syntax tree of a file. Apart from `_read`, which is faster: few need both."""
    tree = plugins.parse_file(path)
    if path.parent in (plugins.folder_of("datasets"), plugins.user_folder("datasets")):
        _spare_descriptions(tree)
    return hashlib.sha256(_canonical(tree).encode()).hexdigest()


def _spare_descriptions(tree):
    """Remove the values that only describe a dataset from the syntax tree of its file."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DESCRIPTIONS:
            node.value = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        keys = [getattr(key, "value", None) for key in node.keys]
        sha256 = dict(zip(keys, node.values, strict=True)).get("sha256")
        if "urls" in keys and sha256 and getattr(sha256, "value", sha256) is not None:
            node.values[keys.index("urls")] = None


def _canonical(node):
    """A syntax tree as text, without docstrings, equal on all versions of Python.

    The texts of ast.dump and ast.unparse depend on the version.
    """
    if isinstance(node, list):
        return f"[{','.join([_canonical(part) for part in node if not _executes_nothing(part)])}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty texts in some
        node.values = [part for part in node.values if getattr(part, "value", None) != ""]
    fields = [
        f"{name}={_canonical(value)}"
        for name in node._fields
        if name not in SPARED_FIELDS and (value := getattr(node, name, None)) not in (None, [])
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def _executes_nothing(statement):
    """Whether a statement is only a string, as a docstring is."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@functools.cache
def _executed(start, without):
    seen, todo = set(), list(start)
    while todo:
        path = todo.pop()
        if path not in seen and path not in without:
            seen.add(path)
            todo += _read(path).imported
    return tuple(sorted(_relative(path) for path in seen if not _read(path).only_documents))


def _relative(path):
    root = PROGRAMS.parent
    return (path.relative_to(root) if path.is_relative_to(root) else path.absolute()).as_posix()


class _Source(NamedTuple):
    imported: tuple[Path, ...]  # of the library, with the __init__ of each package
    only_documents: bool  # it is a docstring and nothing else, as most of those __init__ are


@functools.cache
def _read(path):
    tree = plugins.parse_file(path)
    modules = []
    for node in _executed_statements(tree.body):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    paths = [file for module in modules for file in _files_of(module)]
    only_documents = len(tree.body) == (ast.get_docstring(tree) is not None)
    return _Source(tuple(dict.fromkeys(paths)), only_documents)


@functools.cache
def _files_of(module):
    """The files of a module of the library and of the packages that it is in, or ()."""
    package = module.rpartition(".")[0]
    base = os.path.join(PROGRAMS, *module.split("."))
    own = [Path(file) for file in (f"{base}.py", f"{base}/__init__.py") if os.path.isfile(file)]
    return (*(_files_of(package) if package else ()), *own)


def _executed_statements(statements):
    """All statements and those inside them, without `if TYPE_CHECKING:`, which never runs."""
    for node in statements:
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            continue
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _executed_statements(getattr(node, part, ()))


def git_state(
    folder: str | Path = PROGRAMS, path: str = ".", untracked: str = "no"
) -> dict[str, Any]:
    """The commit of a folder's repository, and whether files differ from it.

    Both are None without git or a repository, and for the workflow's own files if they were
    installed from a wheel: a repository around them is another one.

    Args:
        folder: in the repository. In the workflow's own repository all files are compared except
            the profiles, in which a site names its queues and accounts.
        path: the file or folder that is compared in another folder.
        untracked: "all" if files that git does not track count as changes, else "no".
    """
    if folder == PROGRAMS and wheel_metadata():
        return {"git_commit": None, "git_dirty": None}

    def git(*arguments):
        try:
            command = ["git", "--no-optional-locks", "-C", folder, *arguments]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return result.stdout.strip() if result.returncode == 0 else None

    but_profiles = ["--", ":/", ":(exclude)../profiles"]
    compared = but_profiles if folder == PROGRAMS else ["--ignored", "--", path]
    changes = git("status", "--porcelain", f"--untracked-files={untracked}", *compared)
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),
    }


def is_wheel() -> bool:
    """Whether this dlbench was installed from a wheel; its files may then be read-only."""
    return wheel_metadata() is not None


@functools.cache  # called for each run
def wheel_metadata() -> Path | None:
    """The folder that pip wrote beside PROJECT, if that was installed from a wheel; else None."""
    return next(PROJECT.parent.glob("dlbench-*.dist-info"), None)


def release() -> str | None:
    """Which wheel this is, as 0.1.0+sha256.0123456789ab; None in a clone, an archive or a copy.

    The digest is that of the installed files as they are now. If some are not those that were
    installed, it ends with `.changed`.
    """
    metadata = wheel_metadata()
    return _release(metadata) if metadata else None


def version() -> str:
    """The version for people: with the wheel's digest, or the commit of a clone if git knows it."""
    if found := release():
        return found
    state = git_state()
    if not state["git_commit"]:
        return __version__
    changed = ", with changes" if state["git_dirty"] else ""
    return f"{__version__} (commit {state['git_commit'][:SHOWN]}{changed})"


@functools.cache
def _release(metadata: Path) -> str:
    with open(metadata / "RECORD", encoding="utf-8", newline="") as file:
        recorded = {name: digest for name, digest, _ in csv.reader(file) if digest}
    ours = sorted(name for name in recorded if name.startswith(f"{PROJECT.name}/"))
    found = {name: _file_digest(metadata.parent / name) for name in ours}
    listed = "".join(f"{name}\0{digest}\n" for name, digest in found.items())
    digest = hashlib.sha256(listed.encode()).hexdigest()[:SHOWN]
    changed = "" if all(found[name] == recorded[name] for name in ours) else ".changed"
    return f"{__version__}+sha256.{digest}{changed}"


def _file_digest(path):
    """The SHA-256 of a file as RECORD has it; "" if it cannot be read."""
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return ""
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
