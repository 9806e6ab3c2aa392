"""The oldest Snakemake that the Snakefile allows, in an environment of its own."""

import re
import subprocess

import tomllib

from dlbench.common import tools
from support.machines.paths import REPOSITORY

OLDEST = re.search(r'min_version\("([\d.]+)"\)', (REPOSITORY / "Snakefile").read_text())[1]


def install(folder):
    """The Python of a new environment in that folder, with what pyproject.toml names."""
    uv = tools.find_uv()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    packages = [line for line in project["dependencies"] if not line.startswith("snakemake>")]
    subprocess.run([uv, "venv", "-q", folder], check=True)
    python = folder / "bin/python"
    install = [uv, "pip", "install", "-q", "--python", python, f"snakemake=={OLDEST}.*", *packages]
    subprocess.run(install, check=True)
    return str(python)
