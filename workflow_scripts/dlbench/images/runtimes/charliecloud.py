"""Charliecloud: an ordinary user enters an unpacked image and stays the same user inside.

Charliecloud has no read-only binds: `:ro` is ignored.
"""

from typing import Any

from dlbench.images.runtimes import Container, Image, marked_root, with_mount_points

CONTAINED = True
FORWARDS_LIBRARY_PATH = True
OPTIONS = {}
PROGRAMS = ("ch-run",)


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    root = prepared(image, folder, options)
    return [*marked_root(image, root), *([["ch-fromhost", "--nvidia", root]] if gpus else [])]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    return f"{folder}/root"


def command(container: Container, program: list[str]) -> list[str]:
    flags = [f"--cd={container.folder}", "--unset-env=LD_LIBRARY_PATH"]
    for source, target, _ in container.mounts():
        flags += [f"--bind={source}:{target}"]
    flags += [f"--set-env={name}={value}" for name, value in sorted(container.environment.items())]
    start = ["ch-run", *flags, container.image, "--", *program]
    return with_mount_points(container.image, container, start)
