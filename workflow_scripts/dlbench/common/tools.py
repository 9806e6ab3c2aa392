"""External programs: which are installed, how they are run, and why they failed."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from dlbench import Error
from dlbench.common import own_code

OUR_UV = own_code.PROJECT / ".uv" / "bin" / "uv"  # where the README's commands put it
NOT_WRITABLE = (
    "a folder may not be there or not be writable: APPTAINER_TMPDIR, APPTAINER_CACHEDIR, TMPDIR, "
    "the engine's storage or the results"
)
HINTS = {  # by texts in the output of a program
    "no space left": "a disk is full; APPTAINER_TMPDIR, APPTAINER_CACHEDIR, TMPDIR and the "
    "engine's storage may be put elsewhere",
    "permission denied": NOT_WRITABLE,
    "read-only file system": NOT_WRITABLE,
    "cache directory": NOT_WRITABLE,
    "build parent dir": NOT_WRITABLE,
    "exec format error": "the image is for another kind of processor",
    "unauthorized": "the registry wants a login, or the name is misspelt",
}
# Matches lines of output about an error; the first is usually the cause of the later ones.
ERROR_LINE = re.compile(
    r"error|fatal|fail|cannot|can't|could not|unable|denied|not permitted|not found|no such|invalid"
    r"|refused|unauthorized|no space left",
    re.IGNORECASE,
)
HARMLESS_LINE = re.compile(
    r"^\W*(debug|info|verbose|warn(ing)?)\b|\bwarning:|level=warn", re.IGNORECASE
)


def missing_program(programs: Iterable[str | Sequence[str]]) -> str | None:
    """A message about the first program that this machine lacks; None if it has all.

    `programs`: names; a tuple of names are alternatives.
    """
    for names in programs:
        names = (names,) if isinstance(names, str) else names
        if not any(map(shutil.which, names)):
            return f"{' or '.join(names)} is not on the path of this machine"
    return None


def first_installed(names: Iterable[str]) -> str | None:
    """The first program, by name or path, that this machine has, or None."""
    return next(filter(shutil.which, names), None)


def find_uv() -> str:
    """The path of uv: of the one that started this process, else of that on PATH, or in .uv.

    If dlbench was installed from a wheel, that which was installed with it comes before PATH.
    Raises Error: uv is not installed.
    """
    # uv sets UV for its children; it may be inherited from an earlier start and not exist any more.
    with_us = str(_beside_python("uv")) if own_code.is_wheel() else ""
    for name in (os.environ.get("UV", ""), with_us, "uv", str(OUR_UV)):
        if path := shutil.which(name):
            return path
    if own_code.is_wheel():
        install = f"{shlex.quote(sys.executable)} -m pip install uv"
        raise Error(f"uv is not found: `{install}` installs it")
    raise Error("uv is not found: the first command of README.md installs it into .uv")


def uv_command(arguments: str) -> str:
    """A command of uv for people to type in this folder, with uv's path if it is not on PATH."""
    path = Path("uv")
    if not shutil.which("uv"):
        with contextlib.suppress(Error):
            path = Path(find_uv())
    return f"{_typed(path)} {arguments}"


def install_command(extra: str) -> str:
    """The command with which people install an extra of dlbench (optional packages)."""
    if own_code.is_wheel():
        return f"{_typed(Path(sys.executable))} -m pip install 'dlbench[{extra}]'"
    return uv_command(f"sync --extra {extra}")


def _beside_python(name):
    return Path(sys.executable).with_name(name)


def _installed_command(name, arguments):
    """A command of a program that pip installed with dlbench; its path, if PATH has another."""
    path = _beside_python(name)
    found = shutil.which(name)
    is_found = bool(found) and os.path.realpath(found) == os.path.realpath(path)
    return f"{name if is_found else _typed(path)} {arguments}"


def _typed(path):
    """A path as people type it in this folder."""
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def dlbench_command(arguments: str) -> str:
    """A command of dlbench for people to type in this folder.

    Its folder is named where it is another one; without uv it is started by Python, which works
    where the command is not installed.
    """
    if own_code.is_wheel():
        return _installed_command("dlbench", arguments)
    try:
        find_uv()
    except Error:
        folder = shlex.quote(str(own_code.project_path("workflow_scripts/dlbench")))
        return f"python {folder} {arguments}"
    project = (
        "" if own_code.in_project_folder() else f"--project {shlex.quote(str(own_code.PROJECT))} "
    )
    return uv_command(f"run {project}dlbench {arguments}")


def snakemake_command(arguments: str) -> str:
    """A command of Snakemake for people to type in this folder.

    The Snakefile is named where its folder is another one.
    """
    if own_code.in_project_folder():
        return uv_command(f"run snakemake {arguments}")
    project = shlex.quote(str(own_code.PROJECT))
    snakefile = shlex.quote(str(own_code.PROJECT / "Snakefile"))
    if own_code.is_wheel():
        return _installed_command("snakemake", f"--snakefile {snakefile} {arguments}".rstrip())
    return uv_command(f"run --project {project} snakemake --snakefile {snakefile} {arguments}")


def run(command: Sequence[str | PathLike[str]], folder: str | PathLike[str] | None = None) -> str:
    """Run a command, show its output on the terminal and return it.

    Raises Error: the command fails or does not exist; the message has the line about the error.
    """
    print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
    lines = []
    try:
        with subprocess.Popen(
            command,
            cwd=folder,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            for line in process.stdout or ():
                print(line, end="", file=sys.stderr, flush=True)
                lines.append(line)
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    if process.returncode:
        output = "".join(lines)
        hints = {hint: None for text, hint in HINTS.items() if text in output.lower()}
        raise Error(
            f"{Path(command[0]).name} failed (exit code {process.returncode}): "
            + failure_reason(output)
            + "".join(f"; {hint}" for hint in hints)
        )
    return "".join(lines).strip()


def failure_reason(output: str) -> str:
    """Why a program failed, from its output: the first line about an error.

    If no line is about an error, the last four lines; "nothing" if there is no output.

    >>> failure_reason("INFO: no fail-safe\\nchown: not permitted\\nFATAL: failed\\n0 fifos\\n")
    'chown: not permitted'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = (line for line in lines if ERROR_LINE.search(line) and not HARMLESS_LINE.search(line))
    return next(errors, " | ".join(lines[-4:]) or "nothing")
