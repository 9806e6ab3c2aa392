"""Start the session of a campaign: each start that trains is one.

Writes the session's file, for which all its runs wait; before that, logs of damaged runs are put
aside, and the choice of environments and the digests of the executed code are kept.
"""

import argparse
import json

from dlbench.common.command_line import run_program
from dlbench.plan import planning, sentinels
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session", type=json.loads, help="id, started_at and host, as JSON")
    parser.add_argument("--config-json", required=True, metavar="FILE", help="the merged config")
    parser.add_argument(
        "--sentinels", type=json.loads, default=[], help="values of the runs it repeats, as JSON"
    )
    args = parser.parse_args()
    chosen = sentinels.of_values(args.sentinels)
    plan = planning.make_plan(config.merged(args.config_json), lambda *_: chosen)
    plan.start_session(args.session)


if __name__ == "__main__":
    run_program(main)
