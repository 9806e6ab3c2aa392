"""Make the environments that a level of tests needs: `python -m tests.environments LEVEL`.

What is there already stays. Horovod is built from source; uv keeps the wheel. It is built again
where its lock file or the compiler changed, and by the level slow.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TRAIN = REPOSITORY / "envs" / "train"
CI = {"train": "horovod", "jax": "grain", "pytorch": "grain"}  # environment: extra
LEVELS = {"quick": {"train": None}, "ci": CI, "slow": CI | {"train-latest": None}}
OF_PROGRAMS = ("huggingface", "lightning")  # whose tests run in the workflow's own


def main(level):
    extras = dict(LEVELS[level])
    if "horovod" in extras.values() and not compiler():
        print("Horovod is not built: no C++ compiler and make", flush=True)
        extras["train"] = None
    elif "horovod" in extras.values():
        forget_horovod(always=level == "slow")
    for environment, extra in extras.items():
        make(environment, *(["--extra", extra] if extra else []), "--group", "test")
    if extras["train"]:
        built_by().touch()
    for environment in OF_PROGRAMS if level == "slow" else ():
        make(environment)


def make(environment, *options):
    command = [sys.executable, "workflow_scripts/dlbench", "environment", f"envs/{environment}"]
    subprocess.run([*command, *options], cwd=REPOSITORY, check=True)


def compiler():
    """Whether there is one; as root on Debian it is installed where missing."""
    tools = ("g++", "make")
    if not all(map(shutil.which, tools)) and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", *tools]):
            subprocess.run(["apt-get", "-qq", *command], check=False)
    return all(map(shutil.which, tools))


def built_by():
    """A file in uv's cache that says that its wheel of Horovod is of this lock and compiler."""
    version = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    lock = (TRAIN / "uv.lock").read_bytes() + (TRAIN / "pyproject.toml").read_bytes()
    cache = Path(subprocess.check_output([uv(), "cache", "dir"], text=True).strip())
    return cache / f"dlbench-horovod-{hashlib.sha256(lock + version).hexdigest()[:16]}"


def forget_horovod(always):
    if built_by().exists() and not always:
        return
    # By force, since the uv that runs us has the cache in use.
    subprocess.run([uv(), "cache", "clean", "--force", "--quiet", "horovod"], check=True)
    python = TRAIN / ".venv" / "bin" / "python"
    if python.exists():
        remove = [uv(), "pip", "uninstall", "--quiet", "--python", python, "horovod"]
        subprocess.run(remove, check=True)


def uv():
    return os.environ.get("UV") or shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"


if __name__ == "__main__":
    main(*sys.argv[1:])
