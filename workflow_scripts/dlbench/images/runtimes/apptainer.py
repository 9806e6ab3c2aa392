"""Apptainer, or Singularity where a site has that instead.

Options:
    start     directive: Snakemake's container directive enters the image once for all
              processes of the run, which must share a node. command: each process enters
              the image by itself, started by the launcher. auto: directive if the
              processes share a node, else command. The record has the option and the
              way that was used.

- The home folder is not mounted: Python would prefer packages in ~/.local to the image's.
- The image may be a SIF file or a folder. The user is the same inside and outside.
- A SIF file without our marker gets the marker in one more partition, an overlay: rebuilding the
  file takes long, and an ordinary user cannot change the owner of files.
"""

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import tools
from dlbench.images.runtimes import (
    APPTAINER,
    BUILD,
    SQUASH,
    Container,
    Image,
    marked_root,
)

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {"start": ("auto", "directive", "command")}
PROGRAMS = (APPTAINER,)
# `sif add` takes kinds as numbers: a partition (4) of type overlay (4) with a squashfs file system
# (1) in group 1, for one architecture.
OVERLAY = ("--datatype=4", "--parttype=4", "--partfs=1", "--groupid=1")
PROCESSORS = {"x86_64": 2, "aarch64": 4, "ppc64le": 6}
READ_IN_IMAGE = (
    "PATH",
    "LD_LIBRARY_PATH",
)  # Apptainer reads them in the image and adds GPU libraries


def version() -> list[str]:
    return [_name(), "--version"]


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    sif = directive_image(folder)
    if image.kind == "oci":
        return [[*build_command(), sif, f"oci:{image.path}"]]
    if image.marked:
        return [["ln", "--symbolic", str(image.path), sif]]
    if image.kind == "folder":
        return marked_root(image, sif)
    overlay = f"{folder}/marker.squashfs"
    return [
        ["cp", "--reflink=auto", str(image.path), sif],
        ["chmod", "u+rw", sif],
        ["mksquashfs", str(image.marker), overlay, *SQUASH],
        [_name(), "sif", "add", *OVERLAY, f"--partarch={_processor()}", sif, overlay],
        ["rm", overlay],
    ]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    return directive_image(folder)


def directive_image(folder: str | Path) -> str:
    """The path for Snakemake's container directive; it is known before the form exists."""
    return f"{folder}/image.sif"


def command(container: Container, program: list[str]) -> list[str]:
    flags = ["--no-home", f"--pwd={container.folder}"]
    flags += [f"--bind={':'.join(mount)}" for mount in container.mounts()]
    flags += [
        f"--env={name}={value}"
        for name, value in sorted(container.environment.items())
        if name not in READ_IN_IMAGE
    ]
    flags += ["--nv"] if container.gpus else []
    return [_name(), "--silent", "exec", *flags, container.image, *program]


def directive_environment(binds: Iterable[str], gpus: bool) -> dict[str, str]:
    """Variables that give the directive's `apptainer exec` the mounts and GPUs of `command`.

    `binds`: as in a Container; they are added to the user's APPTAINER_BIND.
    """
    mounts = [":".join(mount) for mount in Container("", "", tuple(binds)).mounts()[1:]]
    variables: dict[str, str] = {}
    for tool in ("APPTAINER", "SINGULARITY"):
        from_user = os.environ.get(f"{tool}_BIND", "").split(",")
        joined = ",".join(filter(None, dict.fromkeys([*from_user, *mounts])))
        variables |= {f"{tool}_BIND": joined} if joined else {}
        variables |= {f"{tool}_NV": "1"} if gpus else {}
    return variables


def build_command() -> list[str]:
    """The beginning of the command that builds a SIF file."""
    build = [_name(), *BUILD]
    # Compresses in half of gzip's time, to the same size.
    zstd = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    return [*build, zstd] if _name() == "apptainer" else build


def _processor():
    try:
        return PROCESSORS[platform.machine()]
    except KeyError:
        raise Error(
            f"SIF files for processors of the kind {platform.machine()} get no marker"
        ) from None


def _name():
    return tools.first_installed(APPTAINER) or APPTAINER[0]
