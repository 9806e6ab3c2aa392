"""Environment modules (Lmod or Tcl): the environment after `module load`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from dlbench import Error

# A login shell has the function `module` if the site set it up for its users.
SCRIPT = """
type module >/dev/null 2>&1 || { echo "there is no command module on this machine" >&2; exit 1; }
for name in "$@"; do
    module load "$name" || exit 1
    case ":$LOADEDMODULES:" in *":$name"[:/]*) ;; *) exit 1 ;; esac
done
exec "$DLBENCH_PYTHON" -c 'import json, os; print("\\n" + json.dumps(dict(os.environ)))'
"""


def load(names: list[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables after loading some modules, in this order.

    Raises:
        Error: this machine has no modules, or one cannot be loaded.
    """
    if not names:
        return dict(environ)
    finished = subprocess.run(
        ["bash", "-lc", SCRIPT, "module", *names],
        env={**environ, "DLBENCH_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode:
        message = " | ".join(line.strip() for line in finished.stderr.splitlines() if line.strip())
        raise Error(
            f"module load {' '.join(names)} failed: {message[-500:] or 'no message'}; "
            "the modules are named under site.modules"
        )
    variables = json.loads(finished.stdout.splitlines()[-1])
    # The shell sets these, not the modules.
    of_shell = {"DLBENCH_PYTHON", "SHLVL", "PWD", "OLDPWD", "_"}
    before = {name: environ[name] for name in of_shell if name in environ}
    return {name: value for name, value in variables.items() if name not in of_shell} | before
