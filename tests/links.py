"""Ask the network for every link of the docs to another server: `python -m tests.links`.

Prints those that do not answer within ten minutes, which may be the network's fault.
"""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def main():
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable, "-m", "sphinx", "-Q", "-b", "linkcheck", "-c", "docs", ".", place,
        ]  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=REPOSITORY, check=False, timeout=600)
        found = Path(place, "output.txt")
        print("links to other servers that do not answer, or were not asked in ten minutes:")
        print(*sorted(set(found.read_text().splitlines() if found.is_file() else [])), sep="\n")


if __name__ == "__main__":
    main()
