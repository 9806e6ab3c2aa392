"""Runtimes, one file each: where the trainer runs, on bare metal or in a container.

A runtime file defines:
    OPTIONS: names and defaults of `runtime_options` (dlbench/common/options.py).
    CONTAINED: whether the trainer runs inside an image.
and, if it does:
    FORWARDS_LIBRARY_PATH: whether the host's LD_LIBRARY_PATH is handed on.
    PROGRAMS: names of programs that must be on PATH; of a tuple of names one is enough.
    version(): the command that prints its version.
    form(options): the name of the form of an image that it takes; runs may share a form.
    prepare(image, folder, options, gpus): commands that make this form of an Image
        (dlbench/images/image.py) in `folder`.
    prepared(image, folder, options): the name or path of the form, for Container.image.
    command(container, program): the command that runs `program`, a list, in a Container.
    cleanup(container): the command that ends leftover processes of a Container, or None.
    directive_image(folder): the path that Snakemake's container directive enters, if an option
        has the directive start the run.
A command is a list of strings. Nothing here runs one, and all files need the standard library only.
"""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, tools
from dlbench.images.image import MARKER, Image

APPTAINER = ("apptainer", "singularity")  # the same program under either name
# A cache in the home folder would be one more copy of layers that lie here already.
BUILD = ("build", "--force", "--disable-cache")
TAG = "image"  # of the one image in an OCI layout
UNMARKED_INDEX = "before.json"  # the index of that layout without the layer that holds our marker
# Prefixes of variables of launchers, schedulers and libraries for the processes that they start,
# and of those that set the speed. Runtimes that keep out the environment hand on these.
FORWARDED_PREFIXES = (
    "CUDA", "DLBENCH", "GOMP", "HOROVOD", "HYDRA", "I_MPI", "KMP", "MKL", "MPI", "NCCL",
    "NVIDIA", "OMP", "OMPI", "OPAL", "PMI", "PMIX", "PRTE", "SLURM", "TF", "UCX", "XLA",
)  # fmt: skip
# Variables about programs of the host, which would be wrong inside.
HOST_ONLY = (
    "LD_PRELOAD", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "PYTHONHOME", "PYTHONPATH",
    "PYTHONSTARTUP", "VIRTUAL_ENV",
)  # fmt: skip

# Parts of scripts, whose first argument is the folder of an image. Files that root alone may read
# are left out, and devices, which an ordinary user cannot make.
READ = """tar --directory="$1" --exclude='./dev/*' --ignore-failed-read"""
# Outside of the container a link would lead to a file of this machine.
NO_LINK = (
    '[ ! -L "$1/etc" ] || '
    '{ echo "error: /etc is a link in the image: our marker cannot be put there" >&2; exit 1; }'
)


@dataclass(frozen=True)
class Container:
    """The container that a runtime starts.

    Attributes:
        image: of the runtime's `prepared`.
        folder: of the workflow, inside under the same path and the working folder.
        binds: e.g. /scratch, /data:/input or /data:/input:ro.
        environment: variables that are set inside.
        gpus: whether the GPUs of the node are available inside.
        options: of the runtime.
        name: of the run.
    """

    image: str
    folder: str
    binds: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    gpus: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def mounts(self) -> list[tuple[str, str, str]]:
        """(source, target, mode) of the folders and files of the host that are visible inside."""
        mounts = [(self.folder, self.folder, "rw")]
        if not own_code.at_home():
            mounts.append((str(own_code.HOME), str(own_code.HOME), "ro"))
        for bind in self.binds:
            source, target, mode = (*bind.split(":"), "", "")[:3]
            mounts.append((source, target or source, mode or "rw"))
        return mounts


def with_forwarded_environment(before: list[str], after: list[str]) -> list[str]:
    """A command with a flag --env between its two parts for each variable with one of FORWARDED_PREFIXES.

    The variables are read when the command starts, since those of a rank are known only then.
    Names are matched as a whole, so that they contain nothing that a shell interprets.
    """
    prefixes = r"\|".join(FORWARDED_PREFIXES)
    names = rf"s/^\(\({prefixes}\)_[A-Za-z0-9_]*\)=.*/--env=\1/p"
    script = f"exec {shlex.join(before)} $(env | sed -n {shlex.quote(names)}) {shlex.join(after)}"
    return ["sh", "-c", script]


def unpack_commands(image: Image, root: str) -> list[list[str]]:
    """Commands that unpack an image into the folder `root`, owned by the user."""
    if image.kind == "folder":
        script = f'mkdir "$2" && {READ} --create . | tar --directory="$2" --extract'
        return [["sh", "-c", script, "sh", str(image.path), root]]
    apptainer = tools.first_installed(APPTAINER)
    if apptainer or image.kind == "sif":
        source = f"oci:{image.path}" if image.kind == "oci" else str(image.path)
        return [[apptainer or APPTAINER[0], *BUILD, "--sandbox", root, source]]
    name = f"localhost/dlbench/{image.name.lower()}"
    return [
        podman_pull_command(image, name),
        ["ch-convert", "-i", "podman", "-o", "dir", name, root],
    ]


def marker_command(image: Image, root: str) -> list[str]:
    """The command that writes our marker into the unpacked image in `root`."""
    put = f'mkdir -p "$1/etc" && chmod u+rwx "$1/etc" && rm -rf "$1/{MARKER}"'
    script = f'{NO_LINK}; {put} && cp "$2/{MARKER}" "$1/etc"'
    return ["sh", "-c", script, "sh", root, str(image.marker)]


def pack_commands(image: Image, folder: str) -> tuple[str, list[list[str]]]:
    """(path of an archive of an image in `folder`, commands that make it).

    The archive has the layout, or the files of the image and our marker.
    """
    archive = f"{folder}/image.tar"
    if image.kind == "oci":
        pack = ["tar", f"--directory={image.path}", "--create", f"--file={archive}", "."]
        return archive, [pack]
    root, commands = str(image.path), []
    if image.kind == "sif":
        root = f"{folder}/root"
        commands = unpack_commands(image, root)
    script = f'{READ} --create --file="$2" .'
    if not image.marked:  # added to the archive, for we do not write to folders of the user
        add = f'tar --directory="$3" --append --file="$2" "./{MARKER}"'
        script = f"{NO_LINK}; {READ} --exclude='./{MARKER}' --create --file=\"$2\" . && {add}"
    return archive, [*commands, ["sh", "-c", script, "sh", root, archive, str(image.marker)]]


def podman_pull_command(image: Image, name: str) -> list[str]:
    """The command that brings an image's layout to podman's store under a name."""
    script = 'podman tag "$(podman pull --quiet "$1")" "$2"'
    return ["sh", "-c", script, "sh", f"oci:{image.path}", name]


def with_mount_points(root: str, container: Container, command: list[str]) -> list[str]:
    """A command that makes the mount points of a container's binds and then runs `command`.

    Some runtimes mount only on files and folders that the image has.

    Args:
        root: folder that is the container's root.

    Raises:
        Error: a mount point would be outside of it.
    """
    commands = []
    for source, target, _ in container.mounts():
        point = Path(root + target)
        if not Path(os.path.realpath(point)).is_relative_to(os.path.realpath(root)):
            raise Error(f"{target} cannot be seen in the container: a link in the image leads away")
        if Path(source).is_dir():
            commands.append(["mkdir", "-p", str(point)])
        else:
            commands += [["mkdir", "-p", str(point.parent)], ["touch", str(point)]]
    return ["sh", "-c", " && ".join(map(shlex.join, [*commands, ["exec", *command]]))]
