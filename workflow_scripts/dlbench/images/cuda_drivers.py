"""Which environments need a newer driver of NVIDIA's than a node has, and which do instead.

The CUDA of an environment is that of the wheels in its lock file. Modules and conda bring their
own, of which nothing is known here.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dlbench.common import tools
from dlbench.machine import gpus
from dlbench.study import trainer_environments

RUNTIME = re.compile(
    rf'^name = "(?:{"|".join(gpus.CUDA_PACKAGES)})"\nversion = "(.+)"', re.MULTILINE
)


class Misfit(NamedTuple):
    """An environment that needs a newer driver.

    Attributes:
        reason: a clause with both versions.
        remedy: what to do, a clause.
    """

    environment: str
    reason: str
    remedy: str


def misfits(environments: Iterable[str], driver: str) -> Iterator[Misfit]:
    """Yield a Misfit for each environment whose CUDA needs a newer driver.

    Args:
        environments: names of folders in envs/; others are passed over, as those of images.
        driver: the version that a node has.
    """
    for environment in sorted(set(environments)):
        cuda = cuda_of(environment)
        if needed := cuda and gpus.newer_driver(cuda, driver):
            reason = f"has CUDA {cuda}, which needs driver {needed} or newer, and there is {driver}"
            yield Misfit(environment, reason, _remedy(environment, driver))


def cuda_of(environment: str) -> str | None:
    """The version of CUDA in an environment's lock file; None if it has none."""
    return _cuda_of(trainer_environments.folder(environment).absolute())


@functools.cache
def _cuda_of(folder: Path) -> str | None:
    try:
        found = RUNTIME.search((folder / "uv.lock").read_text(encoding="utf-8"))
    except OSError:
        return None
    return found and found[1]


def _remedy(environment, driver):
    """What to do: an environment with an older CUDA for the same frameworks, or another driver."""
    frameworks = trainer_environments.frameworks_in(environment)
    variants = [
        other
        for other in trainer_environments.environments()
        if frameworks
        and trainer_environments.frameworks_in(other) == frameworks
        # Those of other programs have their packages beside the framework.
        and other.partition("-")[0] == environment.partition("-")[0]
        and (cuda := cuda_of(other))
        and not gpus.newer_driver(cuda, driver)
    ]
    if not variants:
        return "update the driver: no environment in envs/ has an older CUDA and the same framework"
    name = variants[0]
    made = trainer_environments.is_installed(name)
    make = "" if made else f" ({tools.dlbench_command(f'environment envs/{name}')} makes it)"
    return f"give its runs `environment: {name}`{make}, or update the driver"
