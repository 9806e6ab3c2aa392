"""Which of our files a program executes, and the digest of their content.

Rules list these files as inputs and records carry the digest, so that a
changed file redoes what executes it and nothing else. Imports are followed by
reading the source; things found by name (a run's model, say) are given.
"""

import ast
import functools
import hashlib
import subprocess
from pathlib import Path

from dlbench.common import plugins
from dlbench.common.files import written_whole

PROGRAMS = Path(__file__).parents[2]
KEPT = Path("results/code")  # lists of files, each named by the digest of all


def files(program, *named):
    """The program and every file of the library that it or a named thing imports.

    Args:
        program: name of a program in workflow_scripts/, with its suffix.
        named: paths of files that the program finds by name.

    Returns:
        Paths relative to the folder of the Snakefile, those of files elsewhere absolute, sorted.

    Raises:
        Error: a file is not valid Python.
    """
    return list(_files((PROGRAMS / program, *map(Path, named))))


def digest(paths):
    """SHA-256 over names and contents of files, as 64 hexadecimal digits."""
    return _of_all(_listed(paths))


def keep(paths):
    """Keep a list of files with their digests, as sha256sum writes it, for `changed` to read."""
    listed = _listed(paths)
    path = KEPT / f"{_of_all(listed)}.txt"
    if not path.exists():
        with written_whole(path) as part:
            part.write_text("".join(f"{found}  {name}\n" for name, found in listed))


def changed(before, paths):
    """Names of the files that differ from those of a digest, new and lost ones among them.

    None of them where no list of that digest was kept.
    """
    try:
        lines = (KEPT / f"{before}.txt").read_text().splitlines()
    except OSError:
        return []
    was = {tuple(reversed(line.split("  ", 1))) for line in lines}
    return sorted({name for name, _ in was ^ set(_listed(paths))})


def _listed(paths):
    """(name, digest) of files; one of the user's, which may be moved, goes by its last name."""
    return [(Path(p).name if Path(p).is_absolute() else p, _digest(p)) for p in paths]


def _of_all(listed):
    lines = (f"{name}\0{found}\n" for name, found in listed)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@functools.cache
def _digest(path):
    return hashlib.sha256((PROGRAMS.parent / path).read_bytes()).hexdigest()


@functools.cache
def _files(start):
    found, todo = set(), list(start)
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imports(path)
    return tuple(sorted(map(_relative, found)))


def _relative(path):
    root = PROGRAMS.parent
    return (path.relative_to(root) if path.is_relative_to(root) else path.absolute()).as_posix()


@functools.cache
def _imports(path):
    """The files of the library that one file imports, packages' __init__ included."""
    modules = []
    for node in ast.walk(plugins.parsed(path)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    paths = []
    for module in modules:
        parts = module.split(".")
        for length in range(1, len(parts) + 1):
            base = PROGRAMS.joinpath(*parts[:length])
            paths += [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
    return tuple(dict.fromkeys(paths))


def commit(folder=PROGRAMS, path=".", untracked="no"):
    """Commit of a folder's repository and whether files differ from it; unknown without git.

    Args:
        folder: the workflow's own, with its whole repository, or another.
        path: what to look at for changes in another folder.
        untracked: whether files that git does not track are changes: no or all.
    """

    def git(*words):
        try:
            answer = subprocess.run(
                ["git", "--no-optional-locks", "-C", folder, *words],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    looked_at = [] if folder == PROGRAMS else ["--ignored", "--", path]
    changes = git("status", "--porcelain", f"--untracked-files={untracked}", *looked_at)
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),
    }
