"""What snakemake-executor-plugin-lsf 0.3.3 lacks, mended while it is loaded.

- Where bjobs does not answer for some seconds, or the user may not read LSF's file of events, it
  fails with all its jobs: here nothing new is known then.
- A job that bsub refuses ends the campaign: here it has failed, as with other plugins.
- UNKWN, as LSF says where it has lost touch with a node, counts as success: here the job runs
  until LSF knows more.
- It asks less and less often, up to every three minutes, whatever --seconds-between-status-checks
  says: here that is the most it waits.
"""

from dlbench.schedulers import ask_often


def mend(plugin, every_s, settings=None):
    """Change the loaded plugin, once.

    Args:
        plugin: the module snakemake_executor_plugin_lsf.
        every_s: seconds between two questions, at most.
        settings: of the executor; not needed.
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
        except UnboundLocalError:  # of a duration, where the question failed
            states, duration_s = None, None
        states = {job: "RUN" if s == "UNKWN" else s for job, s in (states or {}).items()}
        return states, duration_s or 0.0

    return ask
