"""Programs of the machine that we call: whether they are there, and their errors in words."""

import shutil
import subprocess
import sys
from pathlib import Path

from dlbench import Error

NOT_WRITABLE = (
    "a folder may not be there or not be writable: APPTAINER_TMPDIR, APPTAINER_CACHEDIR, TMPDIR, "
    "the engine's storage or the results"
)
HINTS = {  # by what a program says
    "no space left": "a disk is full; APPTAINER_TMPDIR, APPTAINER_CACHEDIR, TMPDIR and the "
    "engine's storage may be put elsewhere",
    "permission denied": NOT_WRITABLE,
    "read-only file system": NOT_WRITABLE,
    "cache directory": NOT_WRITABLE,
    "build parent dir": NOT_WRITABLE,
    "exec format error": "the image is for another kind of processor",
    "unauthorized": "the registry wants a login, or the name is misspelt",
}


def missing(programs):
    """What this machine lacks, in words; None where all is there.

    Args:
        programs: names; of a tuple of names one is enough.
    """
    for names in programs:
        names = (names,) if isinstance(names, str) else names
        if not any(map(shutil.which, names)):
            return f"{' or '.join(names)} is not on the path of this machine"
    return None


def first(names):
    """The first of some programs that is on the path, or None."""
    return next(filter(shutil.which, names), None)


def run(command, folder=None):
    """Run one command, its output to the terminal and, where it fails, into the error.

    Raises:
        Error: it fails or is not there.
    """
    print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
    lines = []
    try:
        with subprocess.Popen(
            command, cwd=folder, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                lines = [*lines[-30:], line.strip()]
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    if process.returncode:
        said = " | ".join(filter(None, lines[-4:]))
        near = {hint: None for word, hint in HINTS.items() if word in " ".join(lines).lower()}
        raise Error(
            f"{Path(command[0]).name} failed (exit code {process.returncode}): {said}"
            + "".join(f"; {hint}" for hint in near)
        )
    return "\n".join(lines)
