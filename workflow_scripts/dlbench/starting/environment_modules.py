"""Environment modules (Lmod or Tcl): what `module load` changes in the environment."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from dlbench import Error

# A login shell knows the function `module` where the site set it up for its users.
SCRIPT = """
type module >/dev/null 2>&1 || { echo "there is no command module on this machine" >&2; exit 1; }
for name in "$@"; do
    module load "$name" || exit 1
    case ":$LOADEDMODULES:" in *":$name"[:/]*) ;; *) exit 1 ;; esac
done
exec "$DLBENCH_PYTHON" -c 'import json, os; print("\\n" + json.dumps(dict(os.environ)))'
"""


def load(names: list[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment's variables once some modules are loaded, in this order.

    Raises:
        Error: there are no modules on this machine, or one cannot be loaded.
    """
    if not names:
        return dict(environ)
    answer = subprocess.run(
        ["bash", "-lc", SCRIPT, "module", *names],
        env={**environ, "DLBENCH_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if answer.returncode:
        message = " | ".join(line.strip() for line in answer.stderr.splitlines() if line.strip())
        raise Error(
            f"module load {' '.join(names)} failed: {message[-500:] or 'no message'}; "
            "the modules are named under site.modules"
        )
    variables = json.loads(answer.stdout.splitlines()[-1])
    # What the shell itself sets is none of the modules' doing.
    own = {"DLBENCH_PYTHON", "SHLVL", "PWD", "OLDPWD", "_"}
    kept = {name: environ[name] for name in own if name in environ}
    return {name: value for name, value in variables.items() if name not in own} | kept
