"""What snakemake-executor-plugin-slurm 2.8.0 lacks, mended while it is loaded.

- It asks less and less often, up to every three minutes. Mended: it waits
  --seconds-between-status-checks at most.
- It does not know the state `CANCELLED by 0`, which sacct prints, nor PREEMPTED if jobs are not
  requeued, and waits for ever. Mended: both are ends.
- If sacct does not answer, for a moment or because Slurm keeps no accounts, it forgets its jobs.
  Mended: squeue is asked; if that does not answer either, the states stay as they were.
- It waits for ever for a job that Slurm has forgotten. Mended: the job has failed after some time.
- If Slurm allows no or small job arrays (MaxArraySize below 3) it ends the campaign, though it uses
  no arrays. Mended: the limit is not asked for.
- In a job it starts a Snakemake that starts another one by srun, once for each of several runs that
  share the job. Mended: the first does the work; the launcher of a run uses srun if needed.
"""

import time
from typing import Any

from dlbench.schedulers import ask_often

GONE_AFTER_S = 120.0  # since Slurm knew the job last
ARRAY_SIZE = 1000  # the plugin's own default


def mend(plugin: Any, every_s: float, settings: Any) -> None:
    """Change the loaded plugin, once.

    Args:
        plugin: the module snakemake_executor_plugin_slurm.
        every_s: the longest time between two questions.
        settings: of the executor; they tell whether Slurm requeues preempted jobs.
    """
    if getattr(plugin, "_mended", False):
        return
    plugin._mended = True
    ask_often(plugin.Executor, every_s)
    _work_at_once(plugin.Executor)
    if not settings.array_jobs:
        plugin.get_max_array_size = lambda: ARRAY_SIZE
    plugin.query_job_status = _answers(plugin, plugin.query_job_status, settings.requeue)


def _work_at_once(executor):
    theirs = executor.additional_general_args

    def local(self):
        return theirs(self).replace("--executor slurm-jobstep", "--executor local")

    executor.additional_general_args = local


def _answers(plugin, query, requeue):
    seen = {}  # job id: when it was last known

    async def ask(command, logger):
        states, duration_s = await query(command, logger)
        if states is None and command.startswith("sacct"):
            # Accounting is away, or there is none.
            name = command.split()[-1]
            states, duration_s = await query(plugin.query_job_status_squeue(name), logger)
        if states is None:
            return {}, 0.0  # jobs that are not named stay as they are
        now = time.monotonic()
        states = {job_id: plain(state, requeue) for job_id, state in states.items()}
        seen.update(dict.fromkeys(states, now))
        gone = [job_id for job_id, last in seen.items() if now - last > GONE_AFTER_S]
        return {**states, **dict.fromkeys(gone, "FAILED")}, duration_s

    return ask


def plain(state: str, requeue: bool = False) -> str:
    """A state of sacct as the one word that the plugin knows.

    >>> plain("CANCELLED by 1000"), plain("PREEMPTED"), plain("PREEMPTED", requeue=True)
    ('CANCELLED', 'FAILED', 'PREEMPTED')
    """
    word = state.split()[0].rstrip("+") if state.split() else state
    return "FAILED" if word == "PREEMPTED" and not requeue else word
