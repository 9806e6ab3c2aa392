"""Commands that podman and Docker share: images in a store, containers that must be removed."""

from dlbench.images.image import Image
from dlbench.images.runtimes import Container, pack_commands, with_forwarded_environment

LABEL = "dlbench.run"
# `load` prints the name that the archive has, or an id: `Loaded image: x` or
# `Loaded image ID: sha256:...`.
NAMED = 'loaded=$("$1" load --input "$2") && "$1" tag "${loaded##* }" "$3"'


def name(image: Image) -> str:
    """The name of an image in the engine's store; it contains the digest's first 12 digits."""
    return f"localhost/dlbench/{image.name.lower()}:{image.digest.removeprefix('sha256:')[:12]}"


def load_commands(engine: str, image: Image, folder: str) -> list[list[str]]:
    """Commands that load an image into the engine's store under its `name`."""
    archive, commands = pack_commands(image, folder)
    clear = ["rm", "-rf", archive, f"{folder}/root"]
    if image.kind == "oci":
        return [*commands, ["sh", "-c", NAMED, "sh", engine, archive, name(image)], clear]
    return [*commands, [engine, "import", archive, name(image)], clear]


def run_command(
    engine: str, container: Container, program: list[str], flags: list[str]
) -> list[str]:
    """The command that runs `program` in a new container, which is removed afterwards."""
    mounts = [
        f"--volume={':'.join(mount)}" for mount in [*container.mounts(), ("/tmp", "/tmp", "rw")]
    ]
    variables = [f"--env={key}={value}" for key, value in sorted(container.environment.items())]
    before = [
        engine,
        "run",
        "--rm",
        "--network=host",
        "--ipc=host",
        "--entrypoint=",
        f"--workdir={container.folder}",
        f"--label={LABEL}={container.name}",
        *flags,
        *mounts,
    ]
    return with_forwarded_environment(before, [*variables, container.image, *program])


def remove_command(engine: str, container: Container) -> list[str]:
    """The command that removes a run's containers, which are no child processes of the run."""
    listed = f'{engine} ps --all --quiet "--filter=label={LABEL}=$1"'
    return ["sh", "-c", f"{listed} | xargs -r {engine} rm --force", "sh", container.name]
