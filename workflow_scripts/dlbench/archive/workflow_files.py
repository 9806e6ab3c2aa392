"""The files of the workflow itself, which a copy needs to compute a study again."""

import os
from collections.abc import Iterator
from pathlib import Path

from dlbench.common import own_code

NAMES = (
    "Snakefile",
    "rules",
    "workflow_scripts",
    "envs",
    "profiles",
    "hatch_build.py",
    "pyproject.toml",
    "uv.lock",
    "CITATION.cff",
    "LICENSE",
    "README.md",
)
GENERATED = ("__pycache__", "node_modules")


def workflow_files() -> list[str]:
    """Paths relative to the workflow's folder; installed environments are left out."""
    home = own_code.project_path(".")
    return sorted(
        path.as_posix()
        for name in NAMES
        for path in (file.relative_to(home) for file in files_below(home / name))
        if not any(part.startswith(".") or part in GENERATED for part in path.parts)
    )


def files_below(path: Path) -> Iterator[Path]:
    """The plain files below a folder, or the file itself; symbolic links are not followed."""
    if path.is_file():
        yield path
    for root, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(root, name) for name in names)
        yield from (path for path in paths if path.is_file() and not path.is_symlink())
