"""Enroot: an ordinary user enters a squashfs file, by `enroot start` or by Pyxis, srun's plugin.

- pyxis: with these options srun starts one container on each node for all of its processes. A form
  is checked by srun as well, in the default partition.
- `enroot start` hands on the variables that are named, Pyxis all.

Pyxis was not run. Its options are those of https://github.com/NVIDIA/pyxis.
"""

from pathlib import Path
from typing import Any

from dlbench.images.runtimes import (
    SQUASH,
    Container,
    Image,
    marked_root,
    with_forwarded_environment,
)

CONTAINED = True
OPTIONS: dict[str, Any] = {}
VARIANTS: dict[str, dict[str, Any]] = {
    "enroot": {"PROGRAMS": ("enroot",), "FORWARDS_LIBRARY_PATH": False},
    "pyxis": {"PROGRAMS": ("srun",), "FORWARDS_LIBRARY_PATH": True, "LAUNCHERS": ("none", "srun")},
}
# For Enroot's hook, which adds the driver's files.
GPUS = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all")
PYXIS = (
    "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint",
)  # fmt: skip


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False, *, constants: Any
) -> list[list[str]]:
    root, squashed = f"{folder}/root", prepared(image, folder, options)
    return [*marked_root(image, root), ["mksquashfs", root, squashed, *SQUASH], ["rm", "-rf", root]]


def prepared(image: Image, folder: str, options: dict[str, Any], constants: Any = None) -> str:
    return str(Path(folder, "image.sqsh").absolute())


def command(container: Container, program: list[str], constants: Any) -> list[str]:
    variables = [f"{name}={value}" for name, value in sorted(container.environment.items())]
    program = ["env", *variables, *program]
    mounts = [*container.mounts(), ("/tmp", "/tmp", "rw")]
    gpus = GPUS if container.gpus else ()
    if constants["NAME"] == "pyxis":
        return [
            *("srun", "--overlap", f"--container-image={container.image}"),
            f"--container-mounts={','.join(':'.join(mount) for mount in mounts)}",
            *(f"--container-workdir={container.folder}", *PYXIS),
            *([f"--export=ALL,{','.join(gpus)}"] if gpus else []),
            *program,
        ]
    flags = [f"--mount={source}:{to}:none:x-create=auto,rbind,{how}" for source, to, how in mounts]
    inside = ["sh", "-c", 'cd "$0" && exec "$@"', container.folder, *program]
    return with_forwarded_environment(
        ["enroot", "start", *flags, *(f"--env={variable}" for variable in gpus)],
        [container.image, *inside],
    )
