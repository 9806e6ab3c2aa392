"""Make the environments that a level of tests needs: `python -m tests.environments LEVEL`.

What is there already stays. Horovod is built from source; uv keeps the wheel. It is built again
where its lock file or the compiler changed, and by the level slow.

What programs of others lack beside envs/, slow makes where it can: clones, from GitHub or from
DLBENCH_TEST_CLONES, a URL or a folder with OWNER/NAME, and Pythons with packages.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machines import pythons

REPOSITORY = Path(__file__).parents[1]
TRAIN = REPOSITORY / "envs" / "train"
CI = {"train": "horovod", "jax": "grain", "pytorch": "grain"}  # environment: extra
LEVELS = {"quick": {"train": None}, "ci": CI, "slow": CI | {"train-latest": None}}
OF_PROGRAMS = ("huggingface", "lightning", "torchtitan")  # whose tests run in the workflow's own
# Programs of others that envs/ has no environment for: clones, and Pythons with packages.
CLONES = REPOSITORY / ".venv-clones"
COMMITS = {
    "NVIDIA/Megatron-LM": "d98e8a64ddf34856e74b24714e3bedb2f5a39553",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "tensorflow/benchmarks": "8fb79079265933ad39bea628b777af662f5bf15d",
}
PACKAGES = {
    "deepspeed": (
        *("deepspeed==0.19.8", "torch==2.15.0", "transformers==5.24.0", "accelerate==1.15.0"),
        *("ninja", "setuptools"),
    ),
    "imagenet": ("torch==2.15.0", "torchvision"),
    "maxtext": (  # with Python 3.12 or newer, without what is for GPUs
        *("maxtext==0.2.5", "jax==0.12.0.1", "absl-py", "aqtp", "cloud-accelerator-diagnostics"),
        *(
            "datasets",
            "drjax",
            "flax==0.12.12",
            "google-cloud-storage",
            "grain",
            "jaxtyping",
            "jinja2",
        ),
        *("ml-collections", "ml-goodput-measurement", "omegaconf", "optax", "orbax-checkpoint"),
        *("pathwaysutils", "pillow", "psutil", "pydantic", "qwix", "sentencepiece", "sympy"),
        *("tensorboardX", "tensorflow-cpu", "tiktoken", "tokamax", "transformers"),
    ),
    "megatron": ("torch==2.15.0", "numpy", "packaging"),  # with Python 3.12 or newer
    "tf_cnn_benchmarks": ("tensorflow-cpu==2.18.1", "tf_keras==2.18.0", "setuptools<81"),
}


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
    if level == "slow":
        for environment in OF_PROGRAMS:
            make(environment)
        print(*made_for_programs(), sep="\n", flush=True)


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


def clone(repository):
    folder = CLONES / repository
    if not folder.exists():
        pytest.skip(
            f"no clone of {repository}: python -m tests.environments slow makes it, from GitHub "
            "or the folder or URL in DLBENCH_TEST_CLONES"
        )
    return folder


def python_with(name):
    path = REPOSITORY / f".venv-{name}" / "bin" / "python"
    if not path.exists():
        pytest.skip(
            f"no {path.relative_to(REPOSITORY)}: `python -m tests.environments slow` makes it"
        )
    return path


def made_for_programs():
    """Make what programs of others lack. Returns one text for each that cannot be made."""
    source, failed = os.environ.get("DLBENCH_TEST_CLONES", "https://github.com"), []
    for repository, commit in COMMITS.items():
        folder = CLONES / repository
        git = ("git", "-C", folder)
        fetch = (*git, "fetch", "-q", "--depth=1", f"{source}/{repository}", commit)
        commands = ("git", "init", "-q", folder), fetch, (*git, "checkout", "-q", "FETCH_HEAD")
        failed += _made(folder, commands)
    for name, packages in PACKAGES.items():
        folder = REPOSITORY / f".venv-{name}"
        install = (uv(), "pip", "install", "-q", "--python", folder / "bin" / "python", *packages)
        new = name in ("maxtext", "megatron")
        python = pythons.newest()[1] if new else sys.executable
        failed += _made(folder, ((uv(), "venv", "-q", "--python", python, folder), install))
    return failed


def _made(folder, commands):
    """Run the commands that make a folder, if it is missing: all, or none of it is left."""
    for command in () if folder.exists() else commands:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            return [f"{folder.name} is missing: {done.stderr.strip() or done.stdout.strip()}"]
    return []


if __name__ == "__main__":
    main(*sys.argv[1:])
