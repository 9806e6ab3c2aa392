"""podman: containers of an ordinary user from an image in the user's own store.

- The processes of a run share network, memory and process numbers with the host, as MPI
  needs it; the user stays the same.
- Settings of the site (runtime, storage) belong in its containers.conf.
"""

import os

from dlbench.images.runtimes import _engines, podman_pull

CONTAINED = True
HANDS_ON_LIBRARIES = False
OPTIONS = {}
PROGRAMS = ("podman",)


def version():
    return ["podman", "--version"]


def form(options):
    return "podman"


def prepare(image, place, options, gpus=False):
    if image.kind != "oci":
        return _engines.load("podman", image, place)
    return [podman_pull(image, _engines.name(image))]


def prepared(image, place, options):
    return _engines.name(image)


def command(container, program):
    gpus = ["--device=nvidia.com/gpu=all"] if container.gpus else []  # a name of CDI
    flags = ["--ulimit=host", "--pid=host", "--security-opt=label=disable"]
    flags += ["--userns=keep-id"] if os.geteuid() else []  # refused where root starts it
    return _engines.run("podman", container, program, [*flags, *gpus])


def cleanup(container):
    return _engines.remove("podman", container)
