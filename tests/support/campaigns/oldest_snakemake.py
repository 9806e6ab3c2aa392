"""Campaigns under the oldest Snakemake that the Snakefile allows."""

import re
import subprocess

import tomllib

from dlbench.common import tools
from support.campaigns.campaign import Campaign
from support.campaigns.scratch import Scratch
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


class Older(Campaign):
    """A campaign under the Snakemake of another Python than that of the tests."""

    python = ""

    def command(self, *arguments):
        return [self.python, "-m", "snakemake", *arguments]

    def snakemake(self, *arguments, timeout=600):
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


class OlderScratch(Older, Scratch):
    """The same of a workflow that uses ours as a module."""
