"""The real Snakefile in a separate folder, with a study that takes seconds."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from dlbench.common import tools
from dlbench.tables import parquet_files
from support.programs import forked
from support.studies.site_facts import UNDISTURBED

REPOSITORY = Path(__file__).parents[3]
# What each start of Snakemake imports.
IMPORTED = (
    "snakemake.cli", "snakemake.profiles", "snakemake.report.html_reporter", "snakemake.storage",
    "jsonschema", "smart_open",
    "pandas",  # its persistence, once a job has params
)  # fmt: skip
TRAINED = ("ok", "unstable")  # so few steps may well stall on a busy machine
BLOCK = {
    "name": "quick", "model": ["lenet5", "cnn12"], "dataset": ["synthetic", "digits"],
    "batch_per_device": 4, "warmup_steps": 1, "steps": 3,
    "exclude": [{"model": "cnn12", "dataset": "digits"}],
}  # fmt: skip
STUDY = {
    **UNDISTURBED,
    "study": "test", "repeats": 1, "sentinels": "none", "matrix": [BLOCK],
    "figures": ["scaling", "loss"],
}  # fmt: skip


class Campaign:
    """A working copy of the project with its own results."""

    def __init__(self, folder, variables=None):
        self.folder = folder
        self.python = sys.executable
        self.output = ""  # of the last dry run
        self.variables = variables or {}  # added to the environment

    @classmethod
    def fresh(cls, folder):
        campaign = cls.cloned(folder)
        campaign.configure()
        return campaign

    @classmethod
    def cloned(cls, folder):
        """A copy of the tracked files, as in a clone, with the environments of the trainers."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if not name.startswith("tests/") and (REPOSITORY / name).is_file():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, target)
        # With Python's bytecode, so that the first starts of a copy need not compile again.
        for compiled in REPOSITORY.glob("workflow_scripts/**/__pycache__"):
            finished = shutil.ignore_patterns("*.pyc.*")  # others are being written
            shutil.copytree(compiled, folder / compiled.relative_to(REPOSITORY), ignore=finished)
        for made in REPOSITORY.glob("envs/*/.venv"):
            (folder / made.relative_to(REPOSITORY)).symlink_to(made)
        return cls(folder)

    def copied(self, folder, **variables):
        """A copy of the project in another folder, without results and .snakemake."""

        def computed(place, _):
            # Only at the top: the library has a room of that name, too.
            return ["results", ".snakemake"] if Path(place) == self.folder else []

        shutil.copytree(self.folder, folder, symlinks=True, ignore=computed)
        return type(self)(folder, self.variables | variables)

    def copy(self, folder):
        """A copy of the campaign in another folder, with results and .snakemake."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Campaign(folder)

    def configure(self, **changes):
        config = yaml.safe_load((REPOSITORY / "config.yaml").read_text()) | STUDY | changes
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def matrix(self, **changes):
        self.configure(matrix=[BLOCK | changes])

    def configure_sleeping(self, **changes):
        """A study of one block, whose runs take steps of a tenth of a second and no core."""
        models = self.folder / "sleeping"
        models.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "tests/support/trainers/sleeping_model.py", models)
        block = BLOCK | {"name": "long", "model": "sleeping_model"} | changes
        block |= {"dataset": "synthetic", "exclude": []}
        self.configure(matrix=[block], model_folder=models.name, figures=[])

    def command(self, *arguments):
        return [self.python, "-m", "snakemake", *arguments]

    def environment(self):
        return environment() | self.variables

    def snakemake(self, *arguments, timeout=600):
        """Run Snakemake to its end. Returns the finished process; `stdout` also has its stderr."""
        options = {"cwd": self.folder, "env": self.environment(), "timeout": timeout}
        return forked.run(self.command(*arguments), IMPORTED, together=True, **options)

    def succeed(self, *arguments, timeout=600):
        finished = self.snakemake(*arguments, timeout=timeout)
        assert finished.returncode == 0, finished.stdout
        return finished.stdout

    def scheduled(self, *arguments):
        """The jobs of a dry run: {rule: sorted values of its wildcards}."""
        output = self.output = self.succeed("-n", "--quiet", "progress", *arguments)
        jobs = {}
        for block in re.split(r"^(?:(?:local)?rule|checkpoint) ", output, flags=re.MULTILINE)[1:]:
            wildcard = re.search(r"^    wildcards: \w+=(.*)$", block, re.MULTILINE)
            rule = block.partition(":")[0]
            jobs.setdefault(rule, set()).add(wildcard[1] if wildcard else "")
        of_each_start = ("all", "start_session", "end_session")  # that has work
        return {
            rule: sorted(values)
            for rule, values in jobs.items()
            if rule.removeprefix("dlbench_") not in of_each_start
        }

    def dlbench(self, *arguments, code=0):
        """What a command of dlbench prints, errors included; it must end with that exit code."""
        command = [sys.executable, "workflow_scripts/dlbench", *map(str, arguments)]
        options = {"cwd": self.folder, "env": self.environment(), "together": True}
        finished = forked.run(command, forked.OF_TABLES, **options)
        assert finished.returncode == code, finished.stdout
        return finished.stdout

    def rows(self, table="runs"):
        """The rows of a table as texts."""
        with open(self.folder / f"results/tables/{table}.csv", newline="") as file:
            return list(csv.DictReader(file))

    def typed_rows(self, table):
        """The rows of a table with their numbers, truth values and nulls."""
        path = self.folder / f"results/tables/{table}.parquet"
        return parquet_files.read_any(path).to_pylist()

    def records(self):
        paths = sorted((self.folder / "results/runs").glob("*/run.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in paths}

    def ids(self):
        return sorted(path.name for path in (self.folder / "results/runs").iterdir())

    def run_id(self, start):
        (found,) = [name for name in self.ids() if name.startswith(start)]
        return found

    def record(self, start):
        return self.folder / "results/runs" / self.run_id(start) / "run.json"


def environment():
    unchanged = {k: v for k, v in os.environ.items() if not k.startswith("SNAKEMAKE")}
    return {
        # Snakemake's plugin asks a controller at each start, and waits ten seconds where none runs.
        "SLURM_CONF": "/dev/null",
        **unchanged,
        "UV": tools.find_uv(),  # a copy of the project has none of its own
    }
