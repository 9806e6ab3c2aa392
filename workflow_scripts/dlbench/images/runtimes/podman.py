"""podman: rootless containers from an image in the user's store.

- The processes of a run share the host's network, shared memory and process ids, as MPI needs.
  The user is the same inside.
- A site sets podman's runtime and storage in containers.conf.
"""

import os
from typing import Any

from dlbench.images.runtimes import (
    Container,
    Image,
    engine_command,
    load_commands,
    podman_pull_command,
    remove_command,
    store_name,
)

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {}
PROGRAMS = ("podman",)


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    if image.kind != "oci":
        return load_commands("podman", image, folder)
    return [podman_pull_command(image, store_name(image))]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    return store_name(image)


def command(container: Container, program: list[str]) -> list[str]:
    gpus = ["--device=nvidia.com/gpu=all"] if container.gpus else []  # a name of CDI
    flags = ["--ulimit=host", "--pid=host", "--security-opt=label=disable"]
    flags += ["--userns=keep-id"] if os.geteuid() else []  # podman refuses it for root
    return engine_command("podman", container, program, [*flags, *gpus])


def cleanup(container: Container) -> list[str] | None:
    return remove_command("podman", container)
