"""Whether the driver of this machine's GPUs is new enough for the environments of runs.

Where runs are jobs on other nodes, check_site.py asks those.
"""

from collections.abc import Iterator

from dlbench.campaign.doctor_problem import Problem
from dlbench.images import cuda_drivers
from dlbench.machine import gpu_facts
from dlbench.plan import site_devices
from dlbench.study import trainer_environments
from dlbench.study.config import Study


def problems(study: Study | None = None) -> Iterator[Problem]:
    """Yield a Problem for each environment that needs a newer driver.

    Args:
        study: of whose runs; None: all environments that are installed.
    """
    driver = gpu_facts.installed_driver()
    if not driver or (study and site_devices.devices(study.site).kind == "cpu"):
        return
    if study:
        environments = [run.environment for run in study.runs]
    else:
        every = trainer_environments.environments()
        environments = list(filter(trainer_environments.is_installed, every))
    for misfit in cuda_drivers.misfits(environments, driver):
        yield Problem(
            "driver",
            f"envs/{misfit.environment}",
            misfit.reason,
            "its runs on GPUs fail",
            misfit.remedy,
        )
