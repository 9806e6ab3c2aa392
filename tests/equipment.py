"""Scripts that put schedulers and container runtimes on a machine for the tests."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
# Not part of the project: tests that need them are skipped where they are missing.
EQUIPMENT = Path(os.environ.get("DLBENCH_TEST_EQUIPMENT", REPOSITORY.parent / "shared" / "ci"))
