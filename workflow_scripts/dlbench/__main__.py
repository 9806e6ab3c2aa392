"""The command dlbench: `python -m dlbench`, and `python workflow_scripts/dlbench` in any Python.

The latter needs nothing installed and always executes the files beside it; rules start it so.
"""

import sys
from pathlib import Path

if not __package__:  # started as a folder, in which Python would look for modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from dlbench.command import dispatch

if __name__ == "__main__":
    sys.exit(dispatch.main())
