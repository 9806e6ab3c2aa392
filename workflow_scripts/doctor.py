"""Look whether a results folder is healthy, and repair it where asked to.

One line for each finding: what, where, why it matters, how it is repaired. All runs there are, or,
with --configfile or --study, those of that study, are looked at. Exit code 0: healthy;
1: findings; 2: no results, or a bad config. With --repair nothing is deleted: what has to go is
moved to results/aside.
"""

import argparse
import functools
import json
import sys

from dlbench import Error
from dlbench.campaign import doctor
from dlbench.common.command_line import add_configfile
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=".", help="of the workflow, or its results")
    add_configfile(parser)
    parser.add_argument("--study", action="store_true", help="name runs that the config has not")
    parser.add_argument("--content", action="store_true", help="read shards and logs whole")
    parser.add_argument("--repair", action="store_true", help="repair what can be, then look again")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    args = parser.parse_args()
    doctor.entered(args.folder)
    study = config.study_of(args.configfile) if args.study or args.configfile else None
    look = functools.partial(doctor.examine, study, args.content, args.study)
    found, tried = look(), []
    if args.repair and found:
        tried = doctor.mend(found)
        found = look()
    if args.json:
        print(json.dumps(_plain(found, tried)))
    else:
        for finding, problem in tried:
            print(
                f"{'not repaired' if problem else 'repaired'}: {finding.line()} {problem}".strip()
            )
        for finding in found:
            print(finding.line())
        print(f"{len(found)} finding(s)" if found else "healthy", file=sys.stderr)
    sys.exit(1 if found else 0)


def _plain(found, tried):
    return {
        "schema_version": doctor.SCHEMA_VERSION,
        "findings": [finding.plain() for finding in found],
        "repaired": [finding.plain() for finding, problem in tried if not problem],
        "not_repaired": [finding.plain() | {"problem": p} for finding, p in tried if p],
    }


if __name__ == "__main__":
    try:
        main()
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
