"""Docker, where users are allowed to use it. Written from its documentation; not tested.

- The processes of a run share the host's network, shared memory and process ids.
- The user is the same inside, so the files that a run writes belong to the user.
"""

import os
from typing import Any

from dlbench.images.runtimes import (
    Container,
    Image,
    engine_command,
    load_commands,
    remove_command,
    store_name,
)

CONTAINED = True
FORWARDS_LIBRARY_PATH = False
OPTIONS = {}
PROGRAMS = ("docker",)


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    return load_commands("docker", image, folder)


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    return store_name(image)


def command(container: Container, program: list[str]) -> list[str]:
    gpus = ["--gpus=all"] if container.gpus else []
    flags = ["--pid=host", f"--user={os.getuid()}:{os.getgid()}"]
    return engine_command("docker", container, program, [*flags, *gpus])


def cleanup(container: Container) -> list[str] | None:
    return remove_command("docker", container)
