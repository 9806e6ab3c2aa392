"""Docker, for machines whose users may use it. Written to its documentation; not run here.

- The processes of a run share network, memory and process numbers with the host.
- The container's user is the one who starts it, so that what it writes is theirs.
"""

import os

from dlbench.images.runtimes import _engines

CONTAINED = True
HANDS_ON_LIBRARIES = False
OPTIONS = {}
PROGRAMS = ("docker",)


def version():
    return ["docker", "--version"]


def form(options):
    return "docker"


def prepare(image, place, options, gpus=False):
    return _engines.load("docker", image, place)


def prepared(image, place, options):
    return _engines.name(image)


def command(container, program):
    gpus = ["--gpus=all"] if container.gpus else []
    flags = ["--pid=host", f"--user={os.getuid()}:{os.getgid()}"]
    return _engines.run("docker", container, program, [*flags, *gpus])


def cleanup(container):
    return _engines.remove("docker", container)
