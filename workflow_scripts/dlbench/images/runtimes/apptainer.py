"""Apptainer, or Singularity if the site has that.

Options:
    start     directive: Snakemake's container directive enters the image, once for all
              processes of the run, which must share a node. command: the command line
              enters it, once for each process, below the launcher. auto: directive if the
              processes share a node, else command. The record has both.

- The home folder is not mounted: packages in ~/.local would come before the image's.
- The image may be a SIF file or a folder; the user is the same inside.
- A SIF file without our marker gets it as one more partition, an overlay: building the file again
  takes long, and an ordinary user may not give files to other users.
"""

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import tools
from dlbench.images.image import Image
from dlbench.images.runtimes import APPTAINER, BUILD, Container, marker_command, unpack_commands

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {"start": ("auto", "directive", "command")}
PROGRAMS = (APPTAINER,)
# `sif add` knows kinds by number: a partition (4) that is an overlay (4) of squashfs (1), in the
# group of the first (1), for a processor.
OVERLAY = ("--datatype=4", "--parttype=4", "--partfs=1", "--groupid=1")
PROCESSORS = {"x86_64": 2, "aarch64": 4, "ppc64le": 6}
READ_IN_IMAGE = (
    "PATH",
    "LD_LIBRARY_PATH",
)  # Apptainer reads them in the image and adds GPU libraries


def version() -> list[str]:
    """The command that prints its version."""
    return [_name(), "--version"]


def form(options: dict[str, Any]) -> str:
    """The name of the form of an image that it takes."""
    return "apptainer"


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    """Commands that make its form of an image in `folder`."""
    sif = directive_image(folder)
    if image.kind == "oci":
        return [[*build_command(), sif, f"oci:{image.path}"]]
    if image.marked:
        return [["ln", "--symbolic", str(image.path), sif]]
    if image.kind == "folder":
        rights = ["chmod", "--recursive", "u+rwX", sif]
        return [*unpack_commands(image, sif), rights, marker_command(image, sif)]
    overlay = f"{folder}/marker.squashfs"
    quiet = ["-noappend", "-all-root", "-quiet", "-no-progress"]
    return [
        ["cp", "--reflink=auto", str(image.path), sif],
        ["chmod", "u+rw", sif],
        ["mksquashfs", str(image.marker), overlay, *quiet],
        [_name(), "sif", "add", *OVERLAY, f"--partarch={_processor()}", sif, overlay],
        ["rm", overlay],
    ]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    """The name or path of the form, for Container.image."""
    return directive_image(folder)


def directive_image(folder: str | Path) -> str:
    """The path that Snakemake's container directive enters, known before the form is made."""
    return f"{folder}/image.sif"


def command(container: Container, program: list[str]) -> list[str]:
    """The command that runs `program` in a container."""
    flags = ["--no-home", f"--pwd={container.folder}"]
    flags += [f"--bind={':'.join(mount)}" for mount in container.mounts()]
    flags += [
        f"--env={name}={value}"
        for name, value in sorted(container.environment.items())
        if name not in READ_IN_IMAGE
    ]
    flags += ["--nv"] if container.gpus else []
    return [_name(), "--silent", "exec", *flags, container.image, *program]


def cleanup(container: Container) -> list[str] | None:
    """The command that ends leftover processes of a container, or None."""
    return None


def directive_environment(binds: Iterable[str], gpus: bool) -> dict[str, str]:
    """Variables that make the directive's `apptainer exec` do what the flags of `command` do.

    Args:
        binds: as in a Container; they are added to those that the user has set.
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
    # Packs in half the time of gzip, to the same size.
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
