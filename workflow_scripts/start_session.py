"""Start a session: each start of the workflow that trains is one.

Writes the session's file, which all its runs wait for. Before that it cancels jobs that an earlier
start left in a scheduler's queue, since they would write the same files; moves logs aside that
would be replaced; and keeps the choice of environments and the digests of the executed code.
"""

import argparse
import json
import shutil
from pathlib import Path

from dlbench.campaign import start_session
from dlbench.cluster import cluster_job
from dlbench.common.command_line import run_program
from dlbench.plan import planning, sentinels
from dlbench.records import sessions
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session", type=json.loads, help="id, started_at and host, as JSON")
    parser.add_argument(
        "--output", required=True, type=Path, help="its file, also where storage has its own copy"
    )
    parser.add_argument("--config-json", required=True, metavar="FILE", help="the merged config")
    parser.add_argument(
        "--sentinels", type=json.loads, default=[], help="values of the runs it repeats, as JSON"
    )
    parser.add_argument("--scheduler", help="the one that gets the jobs, if any")
    args = parser.parse_args()
    # Before it is planned: they may end runs.
    this = args.session["id"]
    if args.scheduler and (
        cancelled := cluster_job.cancel_leftover_jobs(args.scheduler, except_start=this)
    ):
        print(f"cancelled jobs that an earlier start left behind: {', '.join(cancelled)}")
    chosen = sentinels.of_values(args.sentinels)
    plan = planning.make_plan(config.read_merged_config(args.config_json), lambda *_: chosen)
    start_session.start(plan, args.session)
    if not args.output.exists():
        args.output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sessions.file(this), args.output)


if __name__ == "__main__":
    run_program(main)
