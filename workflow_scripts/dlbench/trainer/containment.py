"""Checks that the trainer runs in the image of its run, or in no image, as the run says, and with
the run's variables.

On bare metal also that it imported the packages which the environment's lock file names.
"""

import importlib.metadata
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import assignments, plugins

IMAGE_MARKER = Path("/etc/dlbench-image.json")  # describe_image.py writes it into our images
LOCK = "uv.lock"
# As uv writes it; Python 3.10 has no tomllib.
LOCKED = re.compile(r'^\[\[package\]\]\nname = "(.+)"\nversion = "(.+)"$', re.M)
INSTALLED = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")


def check_variables(text: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check that this process has the variables of the run, which assignments.py has written."""
    for name, value in assignments.parse(text).items():
        if (found := environ.get(name)) != value:
            raise Error(
                f"the run has the variable {name}={value}, and this process "
                f"{'lacks it' if found is None else f'has {found}'}: start the trainer by "
                f"`env {text}`"
            )


def check(runtime: str, image_id: str | None) -> dict[str, Any] | None:
    """Check that this process runs in the image of the run, or outside of any image.

    Returns the content of the image's marker file, which has its id, as a proof for the log; None
    on bare metal.
    """
    try:
        marker = json.loads(IMAGE_MARKER.read_text(encoding="utf-8"))
        here = marker["image_id"]
    except FileNotFoundError:
        marker = here = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Error(f"{IMAGE_MARKER} is not the marker of an image of ours: {error!r}") from error
    if not plugins.constants("runtimes", runtime)["CONTAINED"]:
        if marker:
            raise Error(
                f"runtime {runtime} was asked for, but this is inside the image {here}: "
                f"{IMAGE_MARKER} is there"
            )
        return None
    if not marker:
        raise Error(
            f"runtime {runtime} was asked for, but this is not in an image: {IMAGE_MARKER} is "
            "missing. Either nothing entered the container (Snakemake without "
            "--software-deployment-method apptainer, for one), or the runtime lets the host's "
            "files through"
        )
    if here != image_id:
        raise Error(
            f"runtime {runtime} was to be in the image {image_id}, but this is the image {here}"
        )
    return marker


def check_imported(runtime: str, packages: Iterable[str]) -> None:
    """Check that packages were imported from this Python's environment, in the locked versions.

    An environment that uv made has its lock file beside it; without a lock file nothing is checked.
    Packages that the lock file does not name may be installed. An image is identified by its digest
    instead. The modules named here must come from the environment, and so must all others that the
    environment has, if they were imported.
    """
    lock = Path(sys.prefix).parent / LOCK
    if lock.is_file() and not plugins.constants("runtimes", runtime)["CONTAINED"]:
        folders = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
        _check_places(set(packages), folders, lock)
        _check_versions(folders, lock)


def _check_places(packages, folders, lock):
    """Check that no module of the environment was imported from elsewhere."""
    installed = {path.name.partition(".")[0] for folder in folders for path in folder.iterdir()}
    inside = [str(Path(sys.prefix)), str(Path(sys.prefix).resolve())]
    for name in sorted((installed | packages) & sys.modules.keys() - sys.stdlib_module_names):
        file = getattr(sys.modules[name], "__file__", None)
        if file and not any(Path(file).is_relative_to(prefix) for prefix in inside):
            raise Error(
                f"package {name} was imported from {Path(file).parent}, and runs of "
                f"{lock.parent.name} have that of {lock}: is the folder named by PYTHONPATH "
                "or by a .pth file of the environment?"
            )


def _check_versions(folders, lock):
    """Check that imported packages have the versions that the lock file names."""
    locked: dict[str, set[str]] = {}
    for name, version in LOCKED.findall(lock.read_text(encoding="utf-8")):
        locked.setdefault(name, set()).add(version)
    for place in sorted(path for folder in folders for path in folder.glob("*.dist-info")):
        described = INSTALLED.fullmatch(place.name)
        name = re.sub(r"[-_.]+", "-", described["name"]).lower() if described else ""
        if name not in locked or described["version"] in locked[name]:
            continue
        files = importlib.metadata.Distribution.at(place).files or ()
        if {file.parts[0] for file in files} & sys.modules.keys():
            raise Error(
                f"expected {name} {' or '.join(sorted(locked[name]))} as in {lock}, found "
                f"{described['version']} in {place.parent}: was it installed by hand? `dlbench "
                f"environment envs/{lock.parent.name}` installs what "
                "the lock file says; or lock what you want: runs are then trained again"
            )
