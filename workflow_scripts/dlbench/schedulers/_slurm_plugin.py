"""What snakemake-executor-plugin-slurm 2.8.0 lacks, mended while it is loaded.

- It asks less and less often, up to every three minutes, whatever --seconds-between-status-checks
  says: here that is the most it waits.
- `CANCELLED by 0`, as sacct says it, is no state to it, and it waits for ever; nor is PREEMPTED,
  where jobs are not requeued.
- Where sacct does not answer, for a moment or because there is no accounting, it forgets all its
  jobs: here squeue is asked, and where that does not answer either, nothing new is known.
- A job that Slurm has forgotten is waited for, for ever.
- A Slurm that is set to no or small job arrays (MaxArraySize below 3) ends the campaign, though no
  arrays are used.
- In a job it starts a Snakemake that starts another by srun, for each run anew where several share
  the job: here the first does the work. What a run needs of srun its launcher does.
"""

import time

from dlbench.schedulers import ask_often

GONE_AFTER_S = 120.0  # a job that was seen and that nobody knows any longer
ARRAY_SIZE = 1000  # as the plugin has it where Slurm does not say


def mend(plugin, every_s, settings):
    """Change the loaded plugin, once.

    Args:
        plugin: the module snakemake_executor_plugin_slurm.
        every_s: seconds between two questions, at most.
        settings: of the executor, which say whether preempted jobs start again by themselves.
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
            return {}, 0.0  # nothing new is known; jobs that are not named stay
        now = time.monotonic()
        states = {job_id: plain(state, requeue) for job_id, state in states.items()}
        seen.update(dict.fromkeys(states, now))
        gone = [job_id for job_id, last in seen.items() if now - last > GONE_AFTER_S]
        return {**states, **dict.fromkeys(gone, "FAILED")}, duration_s

    return ask


def plain(state, requeue=False):
    """A state in the one word that the plugin knows.

    >>> plain("CANCELLED by 1000"), plain("PREEMPTED"), plain("PREEMPTED", requeue=True)
    ('CANCELLED', 'FAILED', 'PREEMPTED')
    """
    word = state.split()[0].rstrip("+") if state.split() else state
    return "FAILED" if word == "PREEMPTED" and not requeue else word
