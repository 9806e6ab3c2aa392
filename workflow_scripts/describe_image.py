"""Say what is inside an image, as one line of JSON; prepare_image.py runs it there.

Python 3.6 must understand it: an image that is too old is to be told so.
"""

import argparse
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys

MARKER = "/etc/dlbench-image.json"
# Modules, and the packages that may bring them.
PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm"),
    "jax": ("jax",),
    "torch": ("torch",),
    "keras": ("keras",),
    "numpy": ("numpy",),
    "psutil": ("psutil",),
    "horovod": ("horovod",),
    "grain": ("grain",),
}


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    mpirun = shutil.which("mpirun")
    print(
        json.dumps(
            {
                "marker": _marker(),
                "python": sys.executable,
                "python_version": platform.python_version(),
                "architecture": platform.machine(),
                "libc": " ".join(platform.libc_ver()),
                "packages": {name: _version(name) for name in PACKAGES},
                "mpirun": mpirun,
                "mpi": _mpi(mpirun),
            }
        )
    )


def _marker():
    try:
        with open(MARKER, encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) else None


def _version(module):
    """The version of what brings a module; unknown where it says none, None without it."""
    if importlib.util.find_spec(module) is None:
        return None
    try:
        from importlib import metadata
    except ImportError:
        return "unknown"
    for package in PACKAGES[module]:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _mpi(mpirun):
    """As in `Open MPI 4.1.8`: the library that the image's mpirun belongs to."""
    if mpirun is None:
        return None
    answer = subprocess.run(
        [mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = answer.stdout.decode(errors="replace")
    match = re.search(r"(Open MPI|MPICH|Intel\(R\) MPI)\D*([\d.]*\d)", text)
    return " ".join(match.groups()) if match else None


if __name__ == "__main__":
    main()
