"""The environments in which runs are trained: their folders, Pythons and packages."""

import functools
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, tools
from dlbench.common.files import sha256
from dlbench.study import other_trainers
from dlbench.study.runs import Run

ENVIRONMENTS = Path("envs")


def has_environment(run: Run) -> bool:
    """Whether a run on bare metal uses an environment. Those of other programs may need none."""
    return not run.is_external or other_trainers.needs(run, "python")


def folder(environment: str) -> Path:
    """The folder of an environment, with its pyproject.toml, uv.lock and .venv."""
    return own_code.here(ENVIRONMENTS / environment)


def trainer_python(environment: str) -> Path:
    """The Python of a trainer's environment."""
    return folder(environment) / ".venv" / "bin" / "python"


def extras() -> dict[str, frozenset[str]]:
    """The extras (optional packages) of each environment, by its name."""
    return _extras(own_code.here(ENVIRONMENTS).absolute())


@functools.cache
def _extras(folder):
    import tomllib  # Python 3.10 lacks it, which may be the Python of an image

    return {
        path.parent.name: frozenset(
            tomllib.loads(path.read_text(encoding="utf-8"))
            .get("project", {})
            .get("optional-dependencies", {})
        )
        for path in sorted(folder.glob("*/pyproject.toml"))
    }


@functools.cache
def has_package(package: str, environment: str) -> bool:
    python = trainer_python(environment)
    folders = python.parents[1].glob(f"lib/python3*/site-packages/{package}/__init__.py")
    return python.exists() and any(folders)  # without its Python it is made anew, without extras


def described(project: Path) -> dict[str, Any]:
    """The content of an environment's pyproject.toml; {} if it is missing or is no TOML.

    What is wrong with it, uv says when it makes the environment.
    """
    import tomllib  # Python 3.10 lacks it, which may be the Python of an image

    try:
        return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def settings(project: Path) -> dict[str, Any]:
    """The table `[tool.dlbench]` of an environment's pyproject.toml; {} without one."""
    return described(project).get("tool", {}).get("dlbench", {})


def lock_digest(project: Path) -> str:
    """SHA-256 of an environment's lock file. Runs are trained again when it changes.

    A new lock file may install the same packages as the one before, as when it fits more Pythons.
    `[tool.dlbench.lock]` then gives its `sha256` and, as `installs_as`, that of the file before,
    which is returned: what was trained stays valid.
    """
    digest, lock = sha256(project / "uv.lock"), settings(project).get("lock", {})
    return lock["installs_as"] if lock.get("sha256") == digest else digest


@functools.cache  # it is asked for each run
def lacks_python(environment: str, ours: str = platform.python_version()) -> str | None:
    """Why an environment cannot be installed: no Python of this machine fits it; None if one does.

    Args:
        environment: a folder of envs/. One that is installed already has its Python.
        ours: version of the Python that runs the workflow.
    """
    if trainer_python(environment).exists():
        return None
    project = described(folder(environment)).get("project", {})
    wanted = project.get("requires-python", "")
    if fits(ours, wanted) or _finds_python(wanted):
        return None
    minors = range(int(ours.split(".")[1]), 0, -1)
    newest = next((f"3.{minor}" for minor in minors if fits(f"3.{minor}", wanted)), wanted)
    install = tools.uv_command(f"python install {newest}")
    return (
        f"envs/{environment} needs Python {wanted}; uv finds none on this machine (the workflow's "
        f"is {ours}). Install one, as with `{install}`, or give another environment"
    )


def fits(version: str, wanted: str) -> bool:
    """Whether a version of Python is within bounds such as `>=3.11,<3.13`.

    Bounds of other kinds (`!=`, `~=`, three numbers) are ignored: uv checks them.

    >>> [fits(version, ">=3.11,<3.13") for version in ("3.10.9", "3.11.0", "3.12.9", "3.13.0")]
    [False, True, True, False]
    """
    release = _release(*version.split(".")[:2])
    bounds = re.findall(r"(>=|<)\s*(\d+)\.(\d+)\b(?!\.)", wanted)
    return all(
        release >= _release(*bound) if sign == ">=" else release < _release(*bound)
        for sign, *bound in bounds
    )


def _release(major, minor):
    return int(major), int(minor)


def _finds_python(wanted):
    """Whether uv finds a Python that fits. True without uv, whose absence is reported later."""
    command = ["python", "find", "--no-project", "--system", "--no-python-downloads", wanted]
    try:
        found = subprocess.run([tools.find_uv(), *command], capture_output=True, check=False)
    except Error:
        return True
    return found.returncode == 0
