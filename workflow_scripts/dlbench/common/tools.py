"""Programs of the machine that we call: whether they are there, and their errors in words."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dlbench import Error

OUR_UV = Path(__file__).parents[3] / ".uv" / "bin" / "uv"  # where the README's commands put it
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
# Of an error's line in what a program says; what comes after it is mostly a consequence.
WRONG = re.compile(
    r"error|fatal|fail|cannot|can't|could not|unable|denied|not permitted|not found|no such|invalid"
    r"|refused|unauthorized|no space left",
    re.IGNORECASE,
)
HARMLESS = re.compile(r"^\W*(debug|info|verbose|warn(ing)?)\b|\bwarning:|level=warn", re.IGNORECASE)


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
    """The first of some programs, by name or path, that this machine has, or None."""
    return next(filter(shutil.which, names), None)


def uv():
    """The uv that runs us, else the one on the path, else that of the README's commands.

    Raises:
        Error: there is none.
    """
    # uv sets UV for what it runs; it may be an older start's, and gone.
    found = first([os.environ.get("UV", ""), "uv", str(OUR_UV)])
    if not found:
        raise Error("uv is not found: the first command of README.md installs it into .uv")
    return shutil.which(found)


def uv_command(arguments):
    """A command of uv for people to type here: with a folder where uv is not on the path."""
    name = "uv"
    if not shutil.which(name):
        with contextlib.suppress(Error):
            name = uv()
    if Path(name).is_relative_to(Path.cwd()):
        name = Path(name).relative_to(Path.cwd())
    return f"{shlex.quote(str(name))} {arguments}"


def run(command, folder=None):
    """Run one command, its output to the terminal and, where it fails, into the error.

    Raises:
        Error: it fails or is not there.
    """
    print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
    said = []
    try:
        with subprocess.Popen(
            command, cwd=folder, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                said.append(line)
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    if process.returncode:
        text = "".join(said)
        near = {hint: None for word, hint in HINTS.items() if word in text.lower()}
        raise Error(
            f"{Path(command[0]).name} failed (exit code {process.returncode}): {reason(text)}"
            + "".join(f"; {hint}" for hint in near)
        )
    return "".join(said).strip()


def reason(said):
    """Why a program failed, from all that it said: its first line about an error.

    Where no line is about one, its last four lines; "nothing" where it said nothing.

    >>> reason("INFO: no fail-safe\\nchown: not permitted\\nFATAL: unpacking failed\\n0 fifos\\n")
    'chown: not permitted'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wrong = (line for line in lines if WRONG.search(line) and not HARMLESS.search(line))
    return next(wrong, " | ".join(lines[-4:]) or "nothing")
