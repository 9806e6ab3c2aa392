"""Docker, podman, and NERSC's podman-hpc: containers from an image in a store.

- The processes of a run share the host's network, shared memory and process ids, as MPI needs.
- The user is the same inside, so the files that a run writes belong to the user.
- A site sets podman's runtime and storage in containers.conf. podman-hpc shows all nodes its copy
  of an image in the folder of squash files (`podman-hpc migrate`).
- Docker and podman-hpc were written from their documentation, and not run.
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
OPTIONS: dict[str, Any] = {}
VARIANTS: dict[str, dict[str, Any]] = {
    "docker": {"PROGRAMS": ("docker",), "GPUS": "--gpus=all"},
    "podman": {"PROGRAMS": ("podman",), "GPUS": "--device=nvidia.com/gpu=all"},  # a name of CDI
    "podman_hpc": {"PROGRAMS": ("podman-hpc",), "GPUS": "--gpu"},
}


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False, *, constants: Any
) -> list[list[str]]:
    (engine,) = constants["PROGRAMS"]
    commands = load_commands(engine, image, folder)
    if image.kind == "oci" and engine != "docker":
        commands = [podman_pull_command(image, store_name(image), engine)]
    return [*commands, *([[engine, "migrate", store_name(image)]] if "hpc" in engine else [])]


def prepared(image: Image, folder: str, options: dict[str, Any], constants: Any = None) -> str:
    return store_name(image)


def command(container: Container, program: list[str], constants: Any) -> list[str]:
    (engine,) = constants["PROGRAMS"]
    flags = ["--pid=host", f"--user={os.getuid()}:{os.getgid()}"]
    if engine != "docker":
        flags = ["--ulimit=host", "--pid=host", "--security-opt=label=disable"]
        flags += ["--userns=keep-id"] if os.geteuid() else []  # podman refuses it for root
    flags += [constants["GPUS"]] if container.gpus else []
    return engine_command(engine, container, program, flags)


def cleanup(container: Container, constants: Any) -> list[str] | None:
    return remove_command(constants["PROGRAMS"][0], container)
