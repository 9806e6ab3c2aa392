"""Sarus and Shifter, which centres install as root; the user is the same inside. Not run.

- Sarus loads an archive of the image (https://sarus.readthedocs.io).
- Shifter's gateway pulls it from a registry to which you may push, as registry.example/me, which
  DLBENCH_REGISTRY names (https://shifter.readthedocs.io). The site's file systems are visible
  inside under their own paths; a bind to another path needs a folder there in the image.
- Both hand on all variables; the site says how the driver of GPUs comes in.
"""

import os
from typing import Any

from dlbench import Error
from dlbench.images.runtimes import Container, Image, pack_commands, store_name

CONTAINED = True
FORWARDS_LIBRARY_PATH = True
OPTIONS: dict[str, Any] = {}
VARIANTS: dict[str, dict[str, Any]] = {
    "sarus": {"PROGRAMS": ("sarus", "skopeo")},
    "shifter": {"PROGRAMS": ("shifter", "shifterimg", "skopeo")},
}
REGISTRY = "DLBENCH_REGISTRY"


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False, *, constants: Any
) -> list[list[str]]:
    name, saved = prepared(image, folder, options, constants), f"{folder}/saved.tar"
    source = f"oci:{image.path}"
    commands: list[list[str]] = []
    if image.kind != "oci":
        archive, commands = pack_commands(image, folder)
        source = f"tarball:{archive}"
    if constants["NAME"] == "sarus":
        loaded = name.removeprefix("load/")
        copied, take = f"docker-archive:{saved}:{loaded}", ["sarus", "load", saved, loaded]
    else:
        copied, take = name.replace("docker:", "docker://"), ["shifterimg", "pull", name]
    clear = ["rm", "-rf", saved, f"{folder}/image.tar", f"{folder}/root"]
    return [*commands, ["skopeo", "copy", source, copied], take, clear]


def prepared(image: Image, folder: str, options: dict[str, Any], constants: Any) -> str:
    name = store_name(image).removeprefix("localhost/")
    if constants["NAME"] == "sarus":
        return f"load/{name}"
    if registry := os.environ.get(REGISTRY):
        return f"docker:{registry}/{name}"
    raise Error(
        f"expected a registry in {REGISTRY}, to which you may push and from which Shifter's "
        "gateway pulls, as registry.example/me; found none"
    )


def command(container: Container, program: list[str], constants: Any) -> list[str]:
    flags = [f"--env={name}={value}" for name, value in sorted(container.environment.items())]
    flags += [f"--workdir={container.folder}"]
    if constants["NAME"] == "sarus":
        for source, target, mode in [*container.mounts(), ("/tmp", "/tmp", "rw")]:
            read_only = ",readonly" * (mode == "ro")
            flags += [f"--mount=type=bind,source={source},destination={target}{read_only}"]
        return ["sarus", "run", "--entrypoint", "", *flags, container.image, *program]
    for source, target, mode in container.mounts():
        if source != target:
            flags += [f"--volume={source}:{target}{':ro' * (mode == 'ro')}"]
    return ["shifter", f"--image={container.image}", *flags, *program]
