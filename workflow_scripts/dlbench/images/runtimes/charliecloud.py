"""Charliecloud: an unpacked image entered by an ordinary user, who stays the same inside.

It knows no binds that are read only: `:ro` means nothing here.
"""

from dlbench.images.runtimes import marking, unpacked, with_mount_points

CONTAINED = True
HANDS_ON_LIBRARIES = True
OPTIONS = {}
PROGRAMS = ("ch-run",)


def version():
    return ["ch-run", "--version"]


def form(options):
    return "charliecloud"


def prepare(image, place, options, gpus=False):
    root = prepared(image, place, options)
    marker = [] if image.marked else [marking(image, root)]
    nvidia = [["ch-fromhost", "--nvidia", root]] if gpus else []
    return [*unpacked(image, root), ["chmod", "--recursive", "u+rwX", root], *marker, *nvidia]


def prepared(image, place, options):
    return f"{place}/root"


def command(container, program):
    flags = [f"--cd={container.folder}", "--unset-env=LD_LIBRARY_PATH"]
    for source, target, _ in container.mounts():
        flags += [f"--bind={source}:{target}"]
    flags += [f"--set-env={name}={value}" for name, value in sorted(container.environment.items())]
    start = ["ch-run", *flags, container.image, "--", *program]
    return with_mount_points(container.image, container, start)


def cleanup(container):
    return None
