"""What snakemake-executor-plugin-lsf 0.3.3 lacks, mended while it is loaded.

- If bjobs does not answer for some seconds, or the user may not read LSF's file of events, the
  plugin fails with all its jobs. Mended: the states stay as they were.
- A job that bsub refuses ends the campaign. Mended: the job has failed, as with other plugins.
- UNKWN, LSF's state after it lost contact with a node, counts as success. Mended: the job runs.
- The plugin asks less and less often, up to every three minutes. Mended: it waits
  --seconds-between-status-checks at most.
"""

from typing import Any

from dlbench.schedulers import ask_often


def mend(plugin: Any, every_s: float, settings: Any = None) -> None:
    """Change the loaded plugin, once.

    Args:
        plugin: the module snakemake_executor_plugin_lsf.
        every_s: the longest time between two questions.
        settings: of the executor; not used.
    """
    if getattr(plugin, "_mended", False):
        return
    plugin._mended = True
    executor = plugin.Executor
    executor.job_stati_bjobs = _answers(executor.job_stati_bjobs)
    executor.job_stati_lsbevents = _answers(executor.job_stati_lsbevents)
    _refused(plugin)
    ask_often(executor, every_s)


def _refused(plugin):
    theirs = plugin.Executor.run_job

    def run_job(self, job):
        try:
            theirs(self, job)
        except plugin.WorkflowError as error:
            self.report_job_error(plugin.SubmittedJobInfo(job), str(error))

    plugin.Executor.run_job = run_job


def _answers(query):
    async def ask(self):
        try:
            states, duration_s = await query(self)
        except UnboundLocalError:  # the plugin's own mistake if the question failed
            states, duration_s = None, None
        states = {job: "RUN" if s == "UNKWN" else s for job, s in (states or {}).items()}
        return states, duration_s or 0.0

    return ask
