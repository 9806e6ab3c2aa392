"""The environments in which runs are trained: their folders, Pythons and packages.

Runs that name no environment get that of their framework. If the machine has no Python for it, they
get an environment whose pyproject.toml names it in `stands_in_for`. The first start writes the
choice into CHOSEN, so that everybody who reads the results, on any machine, expands the config into
the same runs.
"""

import functools
import itertools
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, plugins, tools
from dlbench.common.files import read_json, sha256, write_json
from dlbench.study import launching, other_trainers
from dlbench.study.runs import Run
from dlbench.trainer import engine

ENVIRONMENTS = Path("envs")
CHOSEN = Path("results/chosen_environments.json")


def has_environment(run: Run) -> bool:
    """Whether a run on bare metal uses an environment. Those of other programs may need none."""
    return not run.is_external or other_trainers.needs(run, "python")


def folder(environment: str) -> Path:
    """The folder of an environment, with its pyproject.toml and uv.lock."""
    return own_code.project_path(ENVIRONMENTS / environment)


def packages_folder(environment: str) -> Path:
    """The folder in which uv installs an environment: its .venv in `envs/` of a clone.

    That of the working folder if dlbench was installed from a wheel, which may be read-only.
    """
    place = ENVIRONMENTS / environment if own_code.is_wheel() else folder(environment)
    return place / ".venv"


def trainer_python(environment: str) -> Path:
    """The Python of a trainer's environment."""
    return packages_folder(environment) / "bin" / "python"


def is_installed(environment: str) -> bool:
    """Whether the Python of an environment exists and this user can reach it."""
    try:
        return trainer_python(environment).exists()
    except PermissionError:
        return False


def unreachable_reason(environment: str) -> str | None:
    """Why this user cannot reach an environment that somebody installed; None if he can."""
    python = os.fspath(trainer_python(environment))
    try:
        os.stat(python)  # Path.exists hides the reason from Python 3.14 on
    except PermissionError:
        while os.path.islink(python):
            python = os.path.join(os.path.dirname(python), os.readlink(python))
        return (
            f"the Python of envs/{environment} is {python}, which this user may not reach: have "
            "its owner open the folders above it to others, or make the environment in a copy of "
            "the workflow"
        )
    except OSError:
        return None
    return None


def extras() -> dict[str, frozenset[str]]:
    """The extras (optional packages) of each environment, by its name."""
    return _extras(own_code.project_path(ENVIRONMENTS).absolute())


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
    # Without a Python it will be made anew, without extras.
    return is_installed(environment) and any(folders)


@functools.cache
def environments() -> list[str]:
    """The folders in envs/."""
    return sorted(path.parent.name for path in _all_folders().glob("*/pyproject.toml"))


def installed() -> list[Path]:
    """The folders of all environments that are installed."""
    return [trainer_python(name).parents[1] for name in environments() if is_installed(name)]


@functools.cache
def frameworks_in(environment: str) -> frozenset[str]:
    """The frameworks whose packages a lock file has, also as variants such as tensorflow-cpu."""
    lock = _all_folders() / environment / "uv.lock"
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    parts = {part for name in re.findall(r'^name = "(.+)"', text, re.M) for part in name.split("-")}
    return frozenset(name for name in engine.names() if parts.issuperset(engine.packages(name)))


def _all_folders():
    return own_code.PROJECT / ENVIRONMENTS


def read_pyproject(project: Path) -> dict[str, Any]:
    """The content of an environment's pyproject.toml; {} if it is missing or is no TOML.

    uv reports what is wrong with it when it makes the environment.
    """
    import tomllib  # Python 3.10 lacks it, which may be the Python of an image

    try:
        return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def settings(project: Path) -> dict[str, Any]:
    """The table `[tool.dlbench]` of an environment's pyproject.toml; {} without one."""
    return read_pyproject(project).get("tool", {}).get("dlbench", {})


def lock_digest(project: Path) -> str:
    """SHA-256 of an environment's lock file. Runs are trained again when it changes.

    A new lock file may install the same packages as the previous one, for example if it only fits
    more Pythons. `[tool.dlbench.lock]` then has the digest of the new file as `sha256` and that of
    the previous one as `installs_as`. The latter is returned, so that earlier runs stay valid.
    """
    digest, lock = sha256(project / "uv.lock"), settings(project).get("lock", {})
    return lock["installs_as"] if lock.get("sha256") == digest else digest


def chosen(usual: str) -> str:
    """The environment of runs that name none, given that of their framework.

    The choice in CHOSEN. Before the first start: the first one of `usual` and its stand-ins for
    which this machine has a Python; `usual` if there is none. Raises Error: CHOSEN is damaged, or
    names an environment that does not exist.
    """
    return _chosen(usual, os.getcwd())


@functools.cache  # called for each run
def _chosen(usual, _):
    if choice := _read_choices().get(usual):
        return choice
    stand_ins = (
        path.parent.name
        for path in sorted(own_code.project_path(ENVIRONMENTS).glob("*/pyproject.toml"))
        if settings(path.parent).get("stands_in_for") == usual
    )
    fitting = (name for name in itertools.chain([usual], stand_ins) if not lacks_python(name))
    return next(fitting, usual)


def write_choices(runs: Iterable[Run]) -> None:
    """Add the choices for the frameworks of some runs to CHOSEN.

    A choice without a Python on this machine is not written: a later start may find one. Raises
    Error: as `chosen`, or the file cannot be written.
    """
    written = _read_choices()
    new = {name: chosen(name) for name in sorted(_usual(runs) - written.keys())}
    if new := {name: choice for name, choice in new.items() if not lacks_python(choice)}:
        try:
            write_json(CHOSEN, written | new)
        except OSError as error:
            raise Error(f"{CHOSEN}: it cannot be written: {error.strerror}") from error


def describe_choices(runs: Iterable[Run]) -> Iterator[str]:
    """Yield a line for each environment of the runs that stands in for another one."""
    runs = list(runs)
    environments = {run.environment for run in runs}
    for usual in sorted(_usual(runs) - environments):
        if (choice := chosen(usual)) in environments:
            yield (
                f"runs that name no environment are of envs/{choice}, since no Python fits "
                f"envs/{usual} ({CHOSEN})"
            )


def _usual(runs):
    """The environments of the frameworks of runs, other programs' runs left out."""
    frameworks = {run.framework for run in runs if not run.is_external}
    return set(map(engine.environment, frameworks))


def _read_choices():
    """{usual environment: the chosen one}, {} before the first start."""
    try:
        # Listed first: a node's cache of a shared folder may not have the file yet.
        if CHOSEN.name not in os.listdir(CHOSEN.parent):
            return {}
    except FileNotFoundError:
        return {}
    content = read_json(CHOSEN)
    if content is None or not all(map(_is_environment, content.values())):
        found = "no JSON object" if content is None else str(content)
        raise Error(
            f'{CHOSEN}: expected folders of {ENVIRONMENTS}/, as in {{"train": "train-latest"}}, '
            f"found {found}; if the file is deleted, the next start chooses anew"
        )
    return content


def _is_environment(name):
    return isinstance(name, str) and (folder(name) / "pyproject.toml").is_file()


def missing_python(run: Run) -> str | None:
    """Why this machine has no Python for a run; None if it has one, or the run needs none."""
    reason = lacks_python(run.environment)
    if not reason or not has_environment(run):
        return None
    contained = plugins.constants("runtimes", run.runtime)["CONTAINED"]
    elsewhere = launching.starts_elsewhere(run.launcher)
    return None if contained or elsewhere else reason


@functools.cache  # called for each run
def lacks_python(environment: str, ours: str = platform.python_version()) -> str | None:
    """Why no Python of this machine fits an environment; None if one does or it is installed.

    Args:
        environment: a folder of envs/.
        ours: version of the Python that runs the workflow.
    """
    if is_installed(environment):
        return None
    if hidden := unreachable_reason(environment):
        return hidden
    project = read_pyproject(folder(environment)).get("project", {})
    required = project.get("requires-python", "")
    if fits(ours, required) or _uv_finds_python(required):
        return None
    minors = range(int(ours.split(".")[1]), 0, -1)
    newest = next((f"3.{minor}" for minor in minors if fits(f"3.{minor}", required)), required)
    install = tools.uv_command(f"python install {newest}")
    return (
        f"envs/{environment} needs Python {required}, which is not installed: uv finds none (the "
        f"workflow's is {ours}). Install one, as with `{install}`, or give another environment"
    )


def fits(version: str, required: str) -> bool:
    """Whether a version of Python is within bounds such as `>=3.11,<3.13`.

    Bounds of other kinds (`!=`, `~=`, three numbers) are ignored: uv checks them.

    >>> [fits(version, ">=3.11,<3.13") for version in ("3.10.9", "3.11.0", "3.12.9", "3.13.0")]
    [False, True, True, False]
    """
    release = _release(*version.split(".")[:2])
    bounds = re.findall(r"(>=|<)\s*(\d+)\.(\d+)\b(?!\.)", required)
    return all(
        release >= _release(*bound) if sign == ">=" else release < _release(*bound)
        for sign, *bound in bounds
    )


def _release(major, minor):
    return int(major), int(minor)


def _uv_finds_python(required):
    """Whether uv finds a Python that fits; True if there is no uv, which is reported later."""
    command = ["python", "find", "--no-project", "--system", "--no-python-downloads", required]
    try:
        finished = subprocess.run([tools.find_uv(), *command], capture_output=True, check=False)
    except Error:
        return True
    return finished.returncode == 0
