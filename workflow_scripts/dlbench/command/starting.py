"""Start Snakemake in the place of this process."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dlbench import Error


def become_snakemake(arguments: Sequence[str]) -> NoReturn:
    """Print the command and replace this process by it, which gets signals and sets the exit code.

    Raises:
        Error: this folder has no workflow.
    """
    if not any(map(Path.is_file, (Path("Snakefile"), Path("workflow/Snakefile")))):
        raise Error(
            f"no Snakefile in {Path.cwd()}: change to the folder of dlbench, or of the workflow "
            "that uses it"
        )
    print(f"+ snakemake {shlex.join(arguments)}".rstrip(), file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *arguments])
