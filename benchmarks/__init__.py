"""How fast dlbench itself is, beside its peers: README.md lists the programs of this folder.

Importing it puts the library and the helpers of the tests on the path.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path[1:1] = [str(REPOSITORY / "tests"), str(REPOSITORY / "workflow_scripts")]
