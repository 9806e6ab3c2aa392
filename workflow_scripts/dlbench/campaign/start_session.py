"""The start of a session: what is done before the first of its runs, and once."""

from collections.abc import Mapping

from dlbench.cluster import cluster_job
from dlbench.plan.plan import Plan
from dlbench.records import sessions
from dlbench.starting import recorded
from dlbench.study import trainer_environments


def start(plan: Plan, session: Mapping[str, str], scheduler: str | None = None) -> None:
    """Start a session, and keep what its runs take for granted.

    Args:
        plan: with the session's sentinels.
        session: as sessions.new returns it.
        scheduler: the one that gets the jobs, a file in schedulers/; None where runs are trained
            on this machine.

    Raises:
        Error: something cannot be written, or jobs of an earlier start do not end.
    """
    if scheduler and (cancelled := cluster_job.cancel_left(scheduler)):
        print(f"cancelled jobs that an earlier start left behind: {', '.join(cancelled)}")
    plan.put_logs_aside()
    recorded.forget_standing()
    trainer_environments.keep_choices(plan.with_tries)
    plan.keep_code()
    sessions.start(session, [run.values() for run in plan.sentinels.runs])
