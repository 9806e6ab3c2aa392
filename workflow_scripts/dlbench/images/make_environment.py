"""Install a trainer's pinned environment with uv, and list its packages."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dlbench import Error
from dlbench.common import own_code, tools
from dlbench.common.files import sha256, write_json
from dlbench.study import trainer_environments

LIST_PACKAGES = (
    "import importlib.metadata, json, platform;"
    "print(json.dumps({'python': platform.python_version(), 'packages':"
    " {d.metadata['Name']: d.version for d in importlib.metadata.distributions()}}))"
)


def make_environment(
    project: Path,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    output: Path | None = None,
) -> None:
    """Install the environment of a project; packages that the lock file does not name stay.

    Args:
        project: folder with pyproject.toml and uv.lock, or its path in dlbench's own folder.
        extras: optional dependencies to install as well.
        groups: dependency groups to install as well.
        output: JSON file for the list of installed packages; None: no list is written.

    Raises:
        Error: uv could not install it.
    """
    if not (project / "pyproject.toml").is_file():
        project = own_code.project_path(project)
    if project == trainer_environments.folder(project.name):
        folder = trainer_environments.packages_folder(project.name)
    else:
        folder = project / ".venv"
    # VIRTUAL_ENV names the workflow's environment; uv would warn that it is not this project's.
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    environment["UV_PROJECT_ENVIRONMENT"] = str(folder.absolute())
    # The environment's folder may be moved or copied. An older uv warns and ignores the feature.
    environment.setdefault("UV_PREVIEW_FEATURES", "relocatable-envs-default")
    # Another uv may be building Horovod, which takes longer than the five minutes uv would wait.
    environment.setdefault("UV_LOCK_TIMEOUT", "3600")
    # Last on PATH: the Python that runs this program, which may not be on it.
    our_python = str(Path(sys.base_exec_prefix) / "bin")
    environment["PATH"] = os.pathsep.join(filter(None, [environment.get("PATH"), our_python]))
    # Compiled now: where Python cannot write bytecode, each rank would take 3 s more to start.
    command = [tools.find_uv(), "sync", "--project", str(project), "--frozen", "--inexact"]
    command += ["--compile-bytecode"]
    command += [argument for extra in extras for argument in ("--extra", extra)]
    command += [argument for group in groups for argument in ("--group", group)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise Error(f"uv could not install {project}; its messages are above")
    if output:
        write_json(output, _installed(project, folder))


def _installed(project: Path, folder: Path) -> dict:
    """The versions of Python and of the installed packages, and the digest of the lock file."""
    python = folder / "bin" / "python"
    finished = subprocess.run(
        [python, "-I", "-c", LIST_PACKAGES], capture_output=True, text=True, check=True
    )
    return {**json.loads(finished.stdout), "lock_sha256": sha256(project / "uv.lock")}
