"""podman: rootless containers from an image in the user's store.

- The processes of a run share the host's network, shared memory and process ids, as MPI needs.
  The user is the same inside.
- A site sets podman's runtime and storage in containers.conf.
"""

import os
from typing import Any

from dlbench.images.image import Image
from dlbench.images.runtimes import Container, _engines, podman_pull_command

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {}
PROGRAMS = ("podman",)


def version() -> list[str]:
    """The command that prints its version."""
    return ["podman", "--version"]


def form(options: dict[str, Any]) -> str:
    """The name of the form of an image that it takes."""
    return "podman"


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    """Commands that make its form of an image in `folder`."""
    if image.kind != "oci":
        return _engines.load_commands("podman", image, folder)
    return [podman_pull_command(image, _engines.name(image))]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    """The name or path of the form, for Container.image."""
    return _engines.name(image)


def command(container: Container, program: list[str]) -> list[str]:
    """The command that runs `program` in a container."""
    gpus = ["--device=nvidia.com/gpu=all"] if container.gpus else []  # a name of CDI
    flags = ["--ulimit=host", "--pid=host", "--security-opt=label=disable"]
    flags += ["--userns=keep-id"] if os.geteuid() else []  # podman refuses it for root
    return _engines.run_command("podman", container, program, [*flags, *gpus])


def cleanup(container: Container) -> list[str] | None:
    """The command that ends leftover processes of a container, or None."""
    return _engines.remove_command("podman", container)
