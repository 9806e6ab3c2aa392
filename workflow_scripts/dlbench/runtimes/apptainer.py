"""Apptainer, or Singularity where that is what a site has.

Options:
    start     directive: Snakemake's container directive enters the image, once for all
              processes of the run, which must share a node. command: the command line
              does, once for each process, below the launcher. auto: directive where the
              processes share a node. Both are recorded.

- The home folder stays outside: packages in ~/.local would come before the image's.
- The image may be a SIF file or a folder; whoever starts it is the same user inside.
"""

import os

from dlbench import tools
from dlbench.runtimes import APPTAINER, Container

CONTAINED = True
HANDS_ON_LIBRARIES = False
OPTIONS = {"start": ("auto", "directive", "command")}
PROGRAMS = (APPTAINER,)
MARKED_DEFINITION = "envs/marked.def"
ITS_OWN = ("PATH", "LD_LIBRARY_PATH")  # it takes them from the image, and adds the GPU's libraries


def version():
    return [_name(), "--version"]


def form(options):
    return "apptainer"


def prepare(image, place, options, gpus=False):
    if image.kind == "oci":
        return [[*_build(), prepared(image, place, options), f"oci:{image.path}"]]
    if not image.marked:
        arguments = [f"--build-arg=IMAGE={image.path}", f"--build-arg=MARKER={image.marker}"]
        return [[*_build(), *arguments, prepared(image, place, options), MARKED_DEFINITION]]
    return [["ln", "--symbolic", str(image.path), prepared(image, place, options)]]


def prepared(image, place, options):
    return f"{place}/image.sif"


def command(container, program):
    flags = ["--no-home", f"--pwd={container.folder}"]
    flags += [f"--bind={':'.join(mount)}" for mount in container.mounts()]
    flags += [
        f"--env={name}={value}"
        for name, value in sorted(container.environment.items())
        if name not in ITS_OWN
    ]
    flags += ["--nv"] if container.gpus else []
    return [_name(), "--silent", "exec", *flags, container.image, *program]


def cleanup(container):
    return None


def directive_environment(binds, gpus):
    """Variables by which the directive's `apptainer exec` gets what `command` would say.

    Args:
        binds: as those of a Container; what the user has in these variables stays.
    """
    mounts = [":".join(mount) for mount in Container("", "", tuple(binds)).mounts()[1:]]
    found = {}
    for tool in ("APPTAINER", "SINGULARITY"):
        given = os.environ.get(f"{tool}_BIND", "").split(",")
        every = ",".join(filter(None, dict.fromkeys([*given, *mounts])))
        found |= {f"{tool}_BIND": every} if every else {}
        found |= {f"{tool}_NV": "1"} if gpus else {}
    return found


def _build():
    build = [_name(), "build", "--force"]
    # Packing takes half the time that it takes with gzip, for the same size.
    zstd = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    return [*build, zstd] if _name() == "apptainer" else build


def _name():
    return tools.first(APPTAINER) or APPTAINER[0]
