"""What podman and Docker have in common: an image in a store, containers that must be removed.

Everything here is a command as a list of strings; nothing is run.
"""

from dlbench.images.runtimes import handing_on, packed

LABEL = "dlbench.run"
# What is loaded has a name of its own or none: `Loaded image: x` or `Loaded image ID: sha256:...`.
NAMED = 'loaded=$("$1" load --input "$2") && "$1" tag "${loaded##* }" "$3"'


def name(image):
    """The name of an image in the engine's store; another digest is another name."""
    return f"localhost/dlbench/{image.name.lower()}:{image.digest.removeprefix('sha256:')[:12]}"


def load(engine, image, place):
    """Commands that bring an image to the store under its `name`."""
    archive, commands = packed(image, place)
    clear = ["rm", "-rf", archive, f"{place}/root"]
    if image.kind == "oci":
        return [*commands, ["sh", "-c", NAMED, "sh", engine, archive, name(image)], clear]
    return [*commands, [engine, "import", archive, name(image)], clear]


def run(engine, container, program, flags):
    """The command that runs `program` in a new container, which is gone afterwards."""
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
    return handing_on(before, [*variables, container.image, *program])


def remove(engine, container):
    """The command that ends the containers of a run: they are no children of who started them."""
    listed = f'{engine} ps --all --quiet "--filter=label={LABEL}=$1"'
    return ["sh", "-c", f"{listed} | xargs -r {engine} rm --force", "sh", container.name]
