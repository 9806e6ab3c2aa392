"""Runtimes, one file each: where the trainer runs, on bare metal or in a container.

A runtime file defines:
    OPTIONS: names and defaults of `runtime_options` (dlbench/common/options.py).
    CONTAINED: whether the trainer is inside an image.
and one that is contained also:
    HANDS_ON_LIBRARIES: whether the host's LD_LIBRARY_PATH comes inside.
    PROGRAMS: what must be on the path, as (name, ...); of a tuple in it one is enough.
    version(): a command that says which version it is.
    form(options): name of the form that an image takes for it; one form serves several runs.
    prepare(image, place, options, gpus): what makes that form of an Image
    (dlbench/images/trainer_image.py)
        in the folder `place`, a list of commands; none where the image is used as it is.
    prepared(image, place, options): what `command` is then given as its image.
    command(container, program): the command line, a list of strings, that runs `program`, a
        list too, in a Container.
    cleanup(container): a command that ends what may be left of it, or None.
Nothing here starts anything, and all of it needs the standard library only.
"""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from dlbench import Error
from dlbench.common import tools

APPTAINER = ("apptainer", "singularity")  # the same program under either name
MARKER = "etc/dlbench-image.json"  # by this file a run proves in which image it is
TAG = "image"  # of the one image in an OCI layout
BEFORE = "before.json"  # the index of that layout without the layer that holds our marker
# What launchers, schedulers and libraries tell the processes they start, and what sets their
# speed. Runtimes that do not hand on the whole environment hand on these.
HANDED_ON = (
    "CUDA", "DLBENCH", "GOMP", "HOROVOD", "HYDRA", "I_MPI", "KMP", "MKL", "MPI", "NCCL",
    "NVIDIA", "OMP", "OMPI", "OPAL", "PMI", "PMIX", "PRTE", "SLURM", "TF", "UCX", "XLA",
)  # fmt: skip
# What the host says about its own programs; inside it would be wrong.
KEPT_OUT = (
    "LD_PRELOAD", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "PYTHONHOME", "PYTHONPATH",
    "PYTHONSTARTUP", "VIRTUAL_ENV",
)  # fmt: skip

# Parts of scripts that are given the folder of an image. A file for root only is no obstacle, and
# an ordinary user can make no devices.
READ = """tar --directory="$1" --exclude='./dev/*' --ignore-failed-read"""
# What a link leads to is a file of this machine's as long as nobody is inside.
NO_LINK = (
    '[ ! -L "$1/etc" ] || '
    '{ echo "error: /etc is a link in the image: our marker cannot be put there" >&2; exit 1; }'
)


@dataclass(frozen=True)
class Container:
    """What a runtime starts.

    `image` is what `prepared` gave. `folder` is the workflow's, seen inside under the same path
    and the working folder. `binds` are as in /scratch, /data:/input and /data:/input:ro. `name`
    is that of the run.
    """

    image: str
    folder: str
    binds: tuple = ()
    environment: dict = field(default_factory=dict)
    gpus: bool = False
    options: dict = field(default_factory=dict)
    name: str = ""

    def mounts(self):
        """(source, target, mode) of what is seen inside beside the image's own files."""
        mounts = [(self.folder, self.folder, "rw")]
        for bind in self.binds:
            source, target, mode = (*bind.split(":"), "", "")[:3]
            mounts.append((source, target or source, mode or "rw"))
        return mounts


def handing_on(before, after):
    """A command with a flag between its two parts for each variable of HANDED_ON that is set.

    Set where it is started: a rank's variables are known only there. Names are matched to the
    last letter, so that nothing in them means anything to the shell.
    """
    prefixes = r"\|".join(HANDED_ON)
    names = rf"s/^\(\({prefixes}\)_[A-Za-z0-9_]*\)=.*/--env=\1/p"
    started = f"exec {shlex.join(before)} $(env | sed -n {shlex.quote(names)}) {shlex.join(after)}"
    return ["sh", "-c", started]


def unpacked(image, root):
    """Commands that make the folder `root`, of whoever starts them, of an image."""
    if image.kind == "folder":
        script = f'mkdir "$2" && {READ} --create . | tar --directory="$2" --extract'
        return [["sh", "-c", script, "sh", str(image.path), root]]
    apptainer = tools.first_installed(APPTAINER)
    if apptainer or image.kind == "sif":
        source = f"oci:{image.path}" if image.kind == "oci" else str(image.path)
        return [[apptainer or APPTAINER[0], "build", "--force", "--sandbox", root, source]]
    name = f"localhost/dlbench/{image.name.lower()}"
    return [podman_pull(image, name), ["ch-convert", "-i", "podman", "-o", "dir", name, root]]


def marking(image, root):
    """The command that writes our marker into the folder `root` of an image."""
    put = f'mkdir -p "$1/etc" && chmod u+rwx "$1/etc" && rm -rf "$1/{MARKER}"'
    script = f'{NO_LINK}; {put} && cp "$2/{MARKER}" "$1/etc"'
    return ["sh", "-c", script, "sh", root, str(image.marker)]


def packed(image, place):
    """(an archive of an image in the folder `place`, commands that make it).

    Of a layout, or of an image's files with our marker among them.
    """
    archive = f"{place}/image.tar"
    if image.kind == "oci":
        pack = ["tar", f"--directory={image.path}", "--create", f"--file={archive}", "."]
        return archive, [pack]
    root, commands = str(image.path), []
    if image.kind == "sif":
        root = f"{place}/root"
        commands = unpacked(image, root)
    pack = f'{READ} --create --file="$2" .'
    if not image.marked:  # into the archive: a folder that is not ours is not written to
        add = f'tar --directory="$3" --append --file="$2" "./{MARKER}"'
        pack = f"{NO_LINK}; {READ} --exclude='./{MARKER}' --create --file=\"$2\" . && {add}"
    return archive, [*commands, ["sh", "-c", pack, "sh", root, archive, str(image.marker)]]


def podman_pull(image, name):
    """The command that brings an image's layout to podman's store under a name."""
    script = 'podman tag "$(podman pull --quiet "$1")" "$2"'
    return ["sh", "-c", script, "sh", f"oci:{image.path}", name]


def with_mount_points(root, container, command):
    """The command, after the places were made at which the container's binds are to be seen.

    Some runtimes bind only to what the image has.

    Args:
        root: folder that is the container's root.

    Raises:
        Error: such a place would be outside of it.
    """
    made = []
    for source, target, _ in container.mounts():
        point = Path(root + target)
        if not Path(os.path.realpath(point)).is_relative_to(os.path.realpath(root)):
            raise Error(f"{target} cannot be seen in the container: a link in the image leads away")
        if Path(source).is_dir():
            made.append(["mkdir", "-p", str(point)])
        else:
            made += [["mkdir", "-p", str(point.parent)], ["touch", str(point)]]
    return ["sh", "-c", " && ".join(map(shlex.join, [*made, ["exec", *command]]))]
