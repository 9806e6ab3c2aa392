"""Slurm's accounting: `power_meter: slurm`, the energy of the step in which srun trained a run.

It is that of all nodes of the step, from its start to its end, as AcctGatherEnergyType counts it;
nodes that other jobs share are counted in full (sacct(1), ConsumedEnergy). Slurm has it once the
step has ended: a run that srun does not start (launcher srun) has none.

Tested with a sacct that stands in; energy accounting itself was not run.
"""

import os
import time
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.log import event_log
from dlbench.machine import energy

COMMAND = ("sacct", "--noheader", "--parsable2", "--format=JobID,Start,End,ConsumedEnergyRaw")
PATIENCE_S, EVERY_S = 5.0, 0.5  # until the accounting knows that the step has ended
MOST = 1.1  # times that of the run; a step that took longer is noted


class Meter:
    def __init__(self, log: Path) -> None:
        self._log, self._started_s = log, int(time.time())  # dates of steps are whole seconds
        self._step: tuple[str, float, float | None] = "", 0.0, None
        self._trouble = ""

    def stop(self) -> None:
        """Ask for the steps until one has ended."""
        job, until_s = os.environ.get("SLURM_JOB_ID", "none"), time.monotonic() + PATIENCE_S
        # The first two words make dates seconds since 1970.
        asked = ["env", "SLURM_TIME_FORMAT=%s", *COMMAND, f"--jobs={job}"]
        self._trouble = f"no step of srun ended in job {job} with the run"
        try:
            while job != "none" and time.monotonic() < until_s:
                if step := longest_step(schedulers.output_of(asked), self._started_s):
                    no_energy = (
                        f"Slurm counts no energy of step {step[0]}: see AcctGatherEnergyType"
                    )
                    self._step, self._trouble = step, "" if step[2] else no_energy
                    return
                time.sleep(EVERY_S)
        except Error as error:
            self._trouble = f"sacct: {error}"

    def fields(self) -> dict[str, Any]:
        """The event `power_meter`."""
        name, took_s, joules = self._step
        ran_s = (event_log.last_run_end(self._log) or {}).get("t_s", took_s)
        note = f"of its step, which took {took_s:g} s, the run {ran_s:.0f} s"
        known = energy.fields(
            "node_",
            joules or None,
            f"node: Slurm step {name}",
            self._trouble,
            note=note if took_s > MOST * ran_s else None,
        )
        return {"scope": "node", "command": [*COMMAND], "trouble": self._trouble or None, **known}


def open_meter(arguments: list[str], log: Path, nodes: int) -> Meter:
    return Meter(log)


def longest_step(text: str, since_s: float) -> tuple[str, float, float | None] | None:
    """(name, seconds, joules) of the longest step of srun that ended; None if there is none.

    `text`: of sacct; steps that began before `since_s` are of other runs.

    >>> longest_step("7|5|90|900\\n7.batch|5|90|900\\n7.0|10|70|600\\n7.1|75|Unknown|", 9)
    ('7.0', 60.0, 600.0)
    """
    steps = []
    lines = [line.split("|") for line in text.split() if line.count("|") == 3]
    for name, start, end, joules in lines:
        number = name.partition(".")[2]
        if all(map(str.isdigit, (number, start, end))) and int(start) >= since_s:
            known = float(joules) if joules.isdigit() else None
            steps.append((name, float(end) - float(start), known))
    return max(steps, key=lambda step: step[1], default=None)
