"""Docker, where users are allowed to use it. Written from its documentation; not tested.

- The processes of a run share the host's network, shared memory and process ids.
- The user is the same inside, so the files that a run writes belong to the user.
"""

import os
from typing import Any

from dlbench.images.image import Image
from dlbench.images.runtimes import Container, _engines

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {}
PROGRAMS = ("docker",)


def version() -> list[str]:
    """The command that prints its version."""
    return ["docker", "--version"]


def form(options: dict[str, Any]) -> str:
    """The name of the form of an image that it takes."""
    return "docker"


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    """Commands that make its form of an image in `folder`."""
    return _engines.load_commands("docker", image, folder)


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    """The name or path of the form, for Container.image."""
    return _engines.name(image)


def command(container: Container, program: list[str]) -> list[str]:
    """The command that runs `program` in a container."""
    gpus = ["--gpus=all"] if container.gpus else []
    flags = ["--pid=host", f"--user={os.getuid()}:{os.getgid()}"]
    return _engines.run_command("docker", container, program, [*flags, *gpus])


def cleanup(container: Container) -> list[str] | None:
    """The command that ends leftover processes of a container, or None."""
    return _engines.remove_command("docker", container)
