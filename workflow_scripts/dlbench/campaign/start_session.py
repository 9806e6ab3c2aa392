"""The start of a session: what is done once, before the first of its runs."""

from collections.abc import Mapping

from dlbench.plan.plan import Plan
from dlbench.records import sessions
from dlbench.starting import fates
from dlbench.study import trainer_environments


def start(plan: Plan, session: Mapping[str, str]) -> None:
    """Start a session, and record what its runs rely on.

    Args:
        plan: with the session's sentinels.
        session: as sessions.new returns it.

    Raises:
        Error: a file cannot be written.
    """
    plan.move_logs_aside()
    fates.forget_links()
    trainer_environments.write_choices(plan.with_tries)
    plan.record_code_digests()
    sessions.start(session, [run.values() for run in plan.sentinels.runs])
