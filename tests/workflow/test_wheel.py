"""The wheel alone trains: in an empty folder, with an empty home, and in nobody's clone.

CONTRIBUTING.md has the command that also lets pip fetch all that a wheel needs.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

from dlbench import __version__
from dlbench.common import tools
from support.campaigns.campaign import STUDY
from support.machines.paths import REPOSITORY, path_without_schedulers

UV = tools.find_uv()
TOPS = ("Snakefile", "config.yaml", "envs", "profiles", "programs", "rules", "studies")


def call(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel that is built from the source distribution, and that of this folder itself."""
    folder = tmp_path_factory.mktemp("dist")
    name = f"dlbench-{__version__}-py3-none-any.whl"
    call(UV, "build", "--quiet", "--out-dir", folder, cwd=REPOSITORY)
    call(UV, "build", "--quiet", "--wheel", "--out-dir", folder / "direct", cwd=REPOSITORY)
    return folder / name, folder / "direct" / name


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheels):
    """An empty folder, in which only a virtual environment with the wheel is; read-only."""
    folder = tmp_path_factory.mktemp("some where") / "my work"
    folder.mkdir()
    call(UV, "venv", "--quiet", "--python", sys.executable, "v", cwd=folder)
    into = ("pip", "install", "--quiet", "--python", "v/bin/python", "--no-deps")
    call(UV, *into, wheels[0], cwd=folder)
    packages = Path(next(folder.glob("v/lib/python3*/site-packages")))
    # What the wheel needs is here already: fetching it again would take minutes.
    (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (folder / "v/bin/uv").symlink_to(UV)
    for path in [packages, *packages.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    yield folder
    for path in [packages, *packages.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


@pytest.fixture(scope="module")
def dlbench(installed):
    """A function that starts the installed command, in an empty home, and returns its output."""
    home = installed.parent / "home"
    home.mkdir()
    passed = ("UV_CACHE_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "OMP_WAIT_POLICY")
    variables = {name: os.environ[name] for name in passed if name in os.environ}
    programs = path_without_schedulers(installed.parent / "programs", os.defpath)
    variables |= {"HOME": str(home), "PATH": programs, "SLURM_CONF": "/dev/null"}

    def start(*arguments):
        finished = subprocess.run(
            ["v/bin/dlbench", *arguments], cwd=installed, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=600,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stdout
        return finished.stdout

    return start


def files_of(folder):
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.ci
def test_both_ways_to_build_give_one_wheel_with_each_file_of_the_workflow_once(wheels):
    built, direct = wheels
    assert built.read_bytes() == direct.read_bytes()
    names = [n for n in zipfile.ZipFile(wheels[0]).namelist() if ".dist-info/" not in n]
    listed = call("git", "ls-files", "--", *TOPS, "workflow_scripts", cwd=REPOSITORY).split("\n")
    wanted = {f"dlbench_workflow/{name}" for name in listed if name}
    others = ("CITATION.cff", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml", "uv.lock")
    assert set(names) == wanted | {f"dlbench_workflow/{n}" for n in others} | {"dlbench.pth"}
    assert len(names) == len(set(names))


@pytest.mark.ci
def test_an_empty_folder_gets_a_study_that_is_planned_trained_and_drawn(installed, dlbench):
    packages = next(installed.glob("v/lib/python3*/site-packages"))
    before = files_of(packages)
    release = dlbench("--version").split()[1]
    assert release.startswith(f"{__version__}+sha256.") and not release.endswith(".changed")
    assert dlbench("where") == f"{packages.resolve() / 'dlbench_workflow'}\n"

    printed = dlbench("init", "--framework", "tensorflow")
    assert printed.splitlines()[-1].lstrip().startswith("v/bin/snakemake --snakefile '")
    environment = REPOSITORY / "envs/train/.venv"
    (installed / "envs/train").mkdir(parents=True)
    (installed / "envs/train/.venv").symlink_to(environment.resolve())
    assert "18 runs to train" in dlbench("run", "config.yaml", "-n", "--quiet", "rules")

    block = STUDY["matrix"][0] | {"model": "lenet5", "dataset": "synthetic", "exclude": []}
    study = yaml.safe_load((installed / "config.yaml").read_text())
    tiny = study | STUDY | {"matrix": [block], "figures": ["loss"]}
    (installed / "config.yaml").write_text(yaml.safe_dump(tiny))
    dlbench("run", "config.yaml", "all", "report")
    (path,) = installed.glob("results/runs/*/run.json")
    record = json.loads(path.read_text())
    assert record["status"] in ("ok", "unstable"), record["message"]
    provenance = record["provenance"]
    assert (provenance["release"], provenance["git_commit"]) == (release, None)
    assert (installed / "results/figures/loss.svg").is_file()
    assert release in (installed / "results/report.html").read_text()
    assert "Nothing to be done" in dlbench("run")
    assert files_of(packages) == before
