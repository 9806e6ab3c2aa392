"""udocker: containers for an ordinary user, without anything installed by root.

Options:
    execmode  how udocker enters the container (`udocker setup --execmode`): P1, P2 (ptrace),
              F1, F2, F3, F4 (library calls), R1 (runc), S1 (Singularity). It determines the
              speed of system calls, so it is part of a run.

- Each execmode needs a separate container, since F and R modes change its files.
- udocker forwards the whole environment, since launchers configure their processes by variables.
- udocker has no read-only binds: `:ro` is ignored.
- The user installs its tools (`udocker install`). The containers are stored beside the image.
"""

import os
import pwd
from pathlib import Path
from typing import Any

from dlbench.images.runtimes import (
    TAG,
    UNMARKED_INDEX,
    Container,
    Image,
    marker_command,
    pack_commands,
    with_mount_points,
)

CONTAINED = True
FORWARDS_LIBRARY_PATH = True
OPTIONS = {"execmode": ("P1", "P2", "F1", "F2", "F3", "F4", "R1", "S1")}
PROGRAMS = ("udocker",)
# For the rendezvous of processes: names of hosts, and files in /tmp.
FROM_HOST = [(path, path, "rw") for path in ("/tmp", "/etc/hosts", "/etc/resolv.conf")]
NAME = "dlbench"  # of the one container in a folder
FOLDERS = {"UDOCKER_CONTAINERS": "containers", "UDOCKER_REPOS": "repos", "UDOCKER_LAYERS": "layers"}


def version() -> list[str]:
    return ["udocker", *_as_root(), "--version"]


def form(options: dict[str, Any]) -> str:
    return f"udocker-{options['execmode']}"


def prepare(
    image: Image, folder: str, options: dict[str, Any], gpus: bool = False
) -> list[list[str]]:
    start = _udocker(folder)
    archive, commands = pack_commands(image, folder)
    if image.kind == "oci":
        # Without our layer: udocker's tar would write through symbolic links of lower layers.
        names = f"s,^./{UNMARKED_INDEX}$,./index.json,"
        without = ["--exclude=./index.json", "--exclude=./manifest.json", f"--transform={names}"]
        commands = [
            ["tar", f"--directory={image.path}", *without, "--create", f"--file={archive}", "."]
        ]
        container = [
            [*start, "load", "-i", archive, NAME],
            [*start, "create", f"--name={NAME}", f"{NAME}:{TAG}"],
            marker_command(image, _root(folder)),
        ]
    else:
        container = [[*start, "import", "--tocontainer", f"--name={NAME}", archive]]
    setup = [*start, "setup", f"--execmode={options['execmode']}", NAME]
    nvidia = [[*start, "setup", "--nvidia", "--force", NAME]] if gpus else []
    # The container holds a copy of everything in these.
    rest = ["rm", "-rf", archive, f"{folder}/layers", f"{folder}/root"]
    return [*commands, *container, setup, *nvidia, rest]


def prepared(image: Image, folder: str, options: dict[str, Any]) -> str:
    return str(Path(folder).absolute())


def command(container: Container, program: list[str]) -> list[str]:
    flags = [
        f"--volume={source}:{target}" for source, target, _ in [*container.mounts(), *FROM_HOST]
    ]
    flags += [f"--env={name}={value}" for name, value in sorted(container.environment.items())]
    start = [
        *_udocker(container.image),
        "--quiet",
        "run",
        "--nobanner",
        "--hostenv",
        "--hostauth",
        f"--user={pwd.getpwuid(os.getuid()).pw_name}",
        "--entrypoint=",
        f"--workdir={container.folder}",
        *flags,
        NAME,
        *program,
    ]
    # In execmode S1 udocker creates no mount points.
    return with_mount_points(_root(container.image), container, start)


def _root(folder):
    return f"{folder}/{FOLDERS['UDOCKER_CONTAINERS']}/{NAME}/ROOT"


def _udocker(folder):
    """The beginning of a command that runs udocker with its containers in `folder`."""
    folders = [f"{key}={Path(folder).absolute() / name}" for key, name in FOLDERS.items()]
    return ["env", *folders, "udocker", *_as_root()]


def _as_root():
    return ["--allow-root"] if os.geteuid() == 0 else []
