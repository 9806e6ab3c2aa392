"""The environments of trainers: their folders, Pythons and packages."""

import functools
from pathlib import Path

from dlbench.study import other_trainers
from dlbench.study.runs import Run

ENVIRONMENTS = Path("envs")


def has_environment(run: Run) -> bool:
    """Whether a run on bare metal uses its environment; another program may do without."""
    return not run.is_external or other_trainers.needs(run, "python")


def trainer_python(environment: str) -> Path:
    """The Python of a trainer's environment, relative to the workflow's folder."""
    return ENVIRONMENTS / environment / ".venv" / "bin" / "python"


@functools.cache
def has_package(package: str, environment: str) -> bool:
    python = trainer_python(environment)
    folders = python.parents[1].glob(f"lib/python3*/site-packages/{package}/__init__.py")
    return python.exists() and any(folders)  # without its Python it is made anew, without extras
