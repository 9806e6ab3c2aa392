"""Apptainer, or Singularity where that is what a site has.

Options:
    start     directive: Snakemake's container directive enters the image, once for all
              processes of the run, which must share a node. command: the command line
              does, once for each process, below the launcher. auto: directive where the
              processes share a node. Both are recorded.

- The home folder stays outside: packages in ~/.local would come before the image's.
- The image may be a SIF file or a folder; whoever starts it is the same user inside.
- A SIF without our marker gets it as one more partition, which lies over the first: to build it
  anew takes long, and an ordinary user may not give files to others.
"""

import os
import platform

from dlbench import Error
from dlbench.common import tools
from dlbench.images.runtimes import APPTAINER, Container, marking, unpacked

CONTAINED = True
HANDS_ON_LIBRARIES = False
OPTIONS = {"start": ("auto", "directive", "command")}
PROGRAMS = (APPTAINER,)
# `sif add` knows kinds by number: a partition (4) that is an overlay (4) of squashfs (1), in the
# group of the first (1), for a processor.
OVERLAY = ("--datatype=4", "--parttype=4", "--partfs=1", "--groupid=1")
PROCESSORS = {"x86_64": 2, "aarch64": 4, "ppc64le": 6}
ITS_OWN = ("PATH", "LD_LIBRARY_PATH")  # it takes them from the image, and adds the GPU's libraries


def version():
    return [_name(), "--version"]


def form(options):
    return "apptainer"


def prepare(image, place, options, gpus=False):
    made = prepared(image, place, options)
    if image.kind == "oci":
        return [[*_build(), made, f"oci:{image.path}"]]
    if image.marked:
        return [["ln", "--symbolic", str(image.path), made]]
    if image.kind == "folder":
        rights = ["chmod", "--recursive", "u+rwX", made]
        return [*unpacked(image, made), rights, marking(image, made)]
    overlay = f"{place}/marker.squashfs"
    quiet = ["-noappend", "-all-root", "-quiet", "-no-progress"]
    return [
        ["cp", "--reflink=auto", str(image.path), made],
        ["chmod", "u+rw", made],
        ["mksquashfs", str(image.marker), overlay, *quiet],
        [_name(), "sif", "add", *OVERLAY, f"--partarch={_processor()}", made, overlay],
        ["rm", overlay],
    ]


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


def _processor():
    try:
        return PROCESSORS[platform.machine()]
    except KeyError:
        raise Error(
            f"SIF files for processors of the kind {platform.machine()} get no marker"
        ) from None


def _name():
    return tools.first_installed(APPTAINER) or APPTAINER[0]
