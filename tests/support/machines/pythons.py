"""Other Pythons of this machine than the one that runs the tests, and the workflow's environment.

Needs the standard library only: `python -m tests` uses it too.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
SUPPORTED = ("3.14", "3.13", "3.12", "3.11")  # by the workflow, the newest first


def find(version):
    """The path of a Python of this version, as "3.13"; None if the machine has none."""
    name = f"python{version}"
    # Beside ours or beside pyenv's commands, as pyenv and uv put them, or on the path.
    beside = Path(sys.base_prefix).parent.glob(f"*/bin/{name}")
    folders = map(Path, os.get_exec_path())
    of_pyenv = [path for f in folders for path in f.parent.glob(f"versions/*/bin/{name}")]
    for path in (*beside, *of_pyenv, shutil.which(name)):
        if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode:
            return Path(path)
    return None


def newest():
    """(version, path) of the newest Python that the workflow supports; (None, None) without one."""
    for version in SUPPORTED:
        if path := find(version):
            return version, path
    return None, None


def workflow_python(version, uv):
    """The Python of the workflow's environment on another version, which is made where missing.

    Args:
        version: one that this machine has.
        uv: path of uv.
    """
    folder = REPOSITORY / f".venv-{version}"
    command = [uv, "sync", "--frozen", "--group", "dev", "--quiet", "--no-python-downloads"]
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    environment["UV_PROJECT_ENVIRONMENT"] = str(folder)
    subprocess.run(
        [*command, "--python", find(version)], cwd=REPOSITORY, env=environment, check=True
    )
    return folder / "bin" / "python"
