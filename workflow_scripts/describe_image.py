"""Describe the software in an image as one line of JSON; `dlbench prepare-image` runs it there.

It must run under Python 3.6, so that an image with an old Python gets a clear message.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", nargs="*", help="print the version of this module")
    modules = parser.parse_args().module
    mpirun = shutil.which("mpirun")
    print(
        json.dumps(
            {
                "marker": _marker(),
                "python": sys.executable,
                "python_version": platform.python_version(),
                "architecture": platform.machine(),
                "libc": " ".join(platform.libc_ver()),
                "packages": {name: _version(name) for name in modules},
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
    """The version of the package with a module; "unknown" if it states none, None without it."""
    if importlib.util.find_spec(module) is None:
        return None
    try:
        from importlib import metadata
    except ImportError:
        return "unknown"
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        pass
    # A package of another name may contain it, as tensorflow-cpu contains tensorflow.
    for package in metadata.distributions():
        if module in (package.read_text("top_level.txt") or "").split():
            return package.version
    return "unknown"


def _mpi(mpirun):
    """Name and version of the MPI that the image's mpirun belongs to, e.g. `Open MPI 4.1.8`."""
    if mpirun is None:
        return None
    finished = subprocess.run(
        [mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = finished.stdout.decode(errors="replace")
    match = re.search(r"(Open MPI|MPICH|Intel\(R\) MPI)\D*([\d.]*\d)", text)
    return " ".join(match.groups()) if match else None


if __name__ == "__main__":
    main()
