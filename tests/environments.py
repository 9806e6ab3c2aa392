"""Make the trainers' environments, with what tests need: `python -m tests.environments`.

What is there already stays. Horovod is built from source, once.
"""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
EXTRAS = {"train": "horovod", "train-latest": None, "jax": "grain", "pytorch": "grain"}
OTHERS = ("huggingface", "lightning")  # of programs/, whose tests run in the workflow's own


def main():
    for environment, extra in EXTRAS.items():
        make = [sys.executable, "workflow_scripts/dlbench", "environment", f"envs/{environment}"]
        make += ["--extra", extra] if extra else []
        subprocess.run([*make, "--group", "test"], cwd=REPOSITORY, check=True)
    for environment in OTHERS:
        make = [sys.executable, "workflow_scripts/dlbench", "environment", f"envs/{environment}"]
        subprocess.run(make, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main()
