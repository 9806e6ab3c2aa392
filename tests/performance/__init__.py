"""Benchmarks of dlbench itself, in folders by topic; `bench` has the shared code.

    uv run python -m tests.performance NAME -- ARGUMENTS

runs one and keeps its figures (see __main__.py). Run as modules, in an environment that has the
needed packages, they only print their figures. Importing any of them puts the library and tests/,
for tests/support, on the path.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[1:1] = [str(REPOSITORY / "tests"), str(REPOSITORY / "workflow_scripts")]
