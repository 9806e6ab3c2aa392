"""Start Snakemake in the place of this process."""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn


def become_snakemake(arguments: Sequence[str]) -> NoReturn:
    """Print the command, and replace this process by it, which gets signals and sets the code."""
    print(f"+ {shlex.join(['snakemake', *arguments])}", file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *arguments])
