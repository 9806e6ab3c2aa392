"""Runtimes, one file each: bare metal, or a container runtime that starts the trainer in an image.

A runtime file defines:
    OPTIONS: names and defaults of `runtime_options` (dlbench/common/options.py).
    CONTAINED: whether the trainer runs inside an image.
and, if it does:
    FORWARDS_LIBRARY_PATH: whether the host's LD_LIBRARY_PATH reaches the container.
    PROGRAMS: names of programs that must be on PATH; of a tuple of names one is enough.
    prepare(image, folder, options, gpus): commands that make its form of an Image in `folder`.
    prepared(image, folder, options): the name or path of the form, for Container.image.
    command(container, program): the command that runs `program`, a list, in a Container.
and, where it differs from what is said here:
    version(): the command that prints the runtime's version; the first program with --version.
    form(options): the name of the form to which it needs an image converted; the file's name. Runs
        with different options may share a form.
    cleanup(container): the command that ends leftover processes of a Container; none is needed.
    LAUNCHERS: launchers under which it works, as it is an option of theirs; any.
    directive_image(folder): the path for Snakemake's container directive, if an option lets the
        directive enter the image.
A command is a list of strings. Nothing here runs one, and all files need the standard library only.
"""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, tools
from dlbench.trainer.containment import IMAGE_MARKER

IMAGES = Path("results/images")
MARKER = str(IMAGE_MARKER.relative_to("/"))
APPTAINER = ("apptainer", "singularity")  # the same program under either name
# A cache in the home folder would hold a second copy of all layers.
BUILD = ("build", "--force", "--disable-cache")
TAG = "image"  # of the one image in an OCI layout
UNMARKED_INDEX = "before.json"  # the layout's index without the layer that holds our marker
# Prefixes of the variables by which launchers, schedulers and libraries configure their processes,
# and of those that set the speed. Runtimes that start from an empty environment forward these.
FORWARDED_PREFIXES = (
    "CUDA", "DLBENCH", "FLUX", "GOMP", "HOROVOD", "HYDRA", "I_MPI", "KMP", "LOCAL", "MASTER", "MKL",
    "MPI", "NCCL", "NVIDIA", "OMP", "OMPI", "OPAL", "PALS", "PMI", "PMIX", "PRTE", "SLURM", "TF",
    "TORCHELASTIC", "UCX", "WORLD", "XLA",
)  # fmt: skip
# Variables that describe the host's programs and would be wrong in a container.
HOST_ONLY = (
    "LD_PRELOAD", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "PYTHONHOME", "PYTHONPATH",
    "PYTHONSTARTUP", "VIRTUAL_ENV",
)  # fmt: skip

# Parts of scripts; $1 is the root folder of an image. They skip files that only root may read, and
# devices, which an ordinary user cannot create.
READ = """tar --directory="$1" --exclude='./dev/*' --ignore-failed-read"""
# Outside the container a symbolic link would lead to a file of this machine.
NO_LINK = (
    '[ ! -L "$1/etc" ] || '
    '{ echo "error: /etc is a link in the image: our marker cannot be put there" >&2; exit 1; }'
)


SQUASH = ("-noappend", "-all-root", "-quiet", "-no-progress")  # flags of mksquashfs
# Of podman and Docker.
LABEL = "dlbench.run"
# `load` prints the name that the archive has, or an id: `Loaded image: x` or
# `Loaded image ID: sha256:...`.
NAMED = 'loaded=$("$1" load --input "$2") && "$1" tag "${loaded##* }" "$3"'


@dataclass(frozen=True)
class Image:
    """An image on this machine.

    Attributes:
        kind: oci (a layout), sif or folder.
        image_id: in the marker.
        marked: whether the image carries the marker already; otherwise its forms get it.
        environment: variables that the image sets (make_image.VARIABLES).
    """

    name: str
    kind: str
    path: Path
    digest: str
    image_id: str
    marked: bool
    environment: dict[str, str]

    @property
    def marker(self) -> Path:
        """The folder that holds the marker file at its path in the image; absolute."""
        # tar takes a relative --directory as relative to the one before it.
        return (IMAGES / self.name / "marker").absolute()


@dataclass(frozen=True)
class Container:
    """A container for a runtime to start.

    Attributes:
        image: name or path of the form, from the runtime's `prepared`.
        folder: the workflow's folder: mounted at the same path, and the working directory.
        binds: e.g. /scratch, /data:/input or /data:/input:ro.
        environment: variables to set in the container.
        gpus: whether the container can use the node's GPUs.
        options: the runtime's options.
        name: name of the run.
    """

    image: str
    folder: str
    binds: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    gpus: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def mounts(self) -> list[tuple[str, str, str]]:
        """(source on the host, target in the container, mode) of each folder or file to mount."""
        mounts = [(self.folder, self.folder, "rw")]
        if not own_code.in_project_folder():
            mounts.append((str(own_code.PROJECT), str(own_code.PROJECT), "ro"))
        for bind in self.binds:
            source, target, mode = (*bind.split(":"), "", "")[:3]
            mounts.append((source, target or source, mode or "rw"))
        return mounts


def with_forwarded_environment(before: list[str], after: list[str]) -> list[str]:
    """A command that inserts --env flags for variables with FORWARDED_PREFIXES between two parts.

    A shell reads the variables when the command starts, since those of a rank exist only then. The
    pattern matches whole names, so they contain nothing that the shell would interpret.
    """
    prefixes = r"\|".join(FORWARDED_PREFIXES)
    names = rf"s/^\(\({prefixes}\)_[A-Za-z0-9_]*\|RANK\)=.*/--env=\1/p"
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
    """The command that copies our marker into the unpacked image in `root`."""
    put = f'mkdir -p "$1/etc" && chmod u+rwx "$1/etc" && rm -rf "$1/{MARKER}"'
    script = f'{NO_LINK}; {put} && cp "$2/{MARKER}" "$1/etc"'
    return ["sh", "-c", script, "sh", root, str(image.marker)]


def marked_root(image: Image, root: str) -> list[list[str]]:
    """Commands that unpack an image into the folder `root`, which its user may write, with our
    marker in it.
    """
    marker = [] if image.marked else [marker_command(image, root)]
    return [*unpack_commands(image, root), ["chmod", "--recursive", "u+rwX", root], *marker]


def pack_commands(image: Image, folder: str) -> tuple[str, list[list[str]]]:
    """(path of an archive of an image in `folder`, commands that write it).

    The archive holds the OCI layout, or the image's files and our marker.
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
    if not image.marked:  # added to the archive, since we do not write to the user's folders
        add = f'tar --directory="$3" --append --file="$2" "./{MARKER}"'
        script = f"{NO_LINK}; {READ} --exclude='./{MARKER}' --create --file=\"$2\" . && {add}"
    return archive, [*commands, ["sh", "-c", script, "sh", root, archive, str(image.marker)]]


def podman_pull_command(image: Image, name: str, engine: str = "podman") -> list[str]:
    """The command that loads an image's layout into podman's store under a name."""
    script = '"$1" tag "$("$1" pull --quiet "$2")" "$3"'
    return ["sh", "-c", script, "sh", engine, f"oci:{image.path}", name]


def with_mount_points(root: str, container: Container, command: list[str]) -> list[str]:
    """A command that creates the mount points of a container's binds and then runs `command`.

    Some runtimes need mount points that exist in the image. `root`: the container's root folder.
    Raises Error: a mount point would be outside of `root`.
    """
    commands = []
    for source, target, _ in container.mounts():
        point = Path(root + target)
        if not Path(os.path.realpath(point)).is_relative_to(os.path.realpath(root)):
            raise Error(
                f"{target} cannot be mounted: a symbolic link in the image leads out of its root"
            )
        if Path(source).is_dir():
            commands.append(["mkdir", "-p", str(point)])
        else:
            commands += [["mkdir", "-p", str(point.parent)], ["touch", str(point)]]
    return ["sh", "-c", " && ".join(map(shlex.join, [*commands, ["exec", *command]]))]


def store_name(image: Image) -> str:
    """The name of an image in podman's or Docker's store, with its digest's first 12 digits."""
    return f"localhost/dlbench/{image.name.lower()}:{image.digest.removeprefix('sha256:')[:12]}"


def load_commands(engine: str, image: Image, folder: str) -> list[list[str]]:
    """Commands that load an image into the engine's store under its `store_name`."""
    archive, commands = pack_commands(image, folder)
    clear = ["rm", "-rf", archive, f"{folder}/root"]
    if image.kind == "oci":
        return [*commands, ["sh", "-c", NAMED, "sh", engine, archive, store_name(image)], clear]
    return [*commands, [engine, "import", archive, store_name(image)], clear]


def engine_command(
    engine: str, container: Container, program: list[str], flags: list[str]
) -> list[str]:
    """The command that runs `program` in a new container, which is removed afterwards."""
    mounts = [
        f"--volume={':'.join(mount)}" for mount in [*container.mounts(), ("/tmp", "/tmp", "rw")]
    ]
    variables = [f"--env={key}={value}" for key, value in sorted(container.environment.items())]
    before = [
        *(engine, "run", "--rm", "--network=host", "--ipc=host", "--entrypoint="),
        *(f"--workdir={container.folder}", f"--label={LABEL}={container.name}", *flags, *mounts),
    ]
    return with_forwarded_environment(before, [*variables, container.image, *program])


def remove_command(engine: str, container: Container) -> list[str]:
    """The command that removes a run's containers, which are no child processes of the run."""
    listed = f'{engine} ps --all --quiet "--filter=label={LABEL}=$1"'
    return ["sh", "-c", f"{listed} | xargs -r {engine} rm --force", "sh", container.name]
