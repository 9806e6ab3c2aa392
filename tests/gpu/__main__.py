"""Run the checks and write their results as JSON, and as a page beside it.

    python -m tests.gpu [--file results/gpu_checks.json] [CHECK ...]

Each check runs in a separate process with a time limit; if one fails, the others go on. Checks that
measure run alone, before the others. Results replace those of the same checks on the same machine
in the file. Exit code 1: a check failed.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
from pathlib import Path

from dlbench.common.files import read_json

from . import REPOSITORY, checks, device, suite
from .suite import ALONE, BESIDE, CHECKS, FAILED, LAST

CORES_PER_CHECK, MAX_AT_ONCE = 2, 8  # of checks that may run beside others


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--file", type=Path, default=REPOSITORY / "results/gpu_checks.json")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="after which no check is started"
    )
    parser.add_argument(
        "--set-power-limit", action="store_true", help="lower the limit of a GPU, and restore it"
    )
    parser.add_argument("--here", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in CHECKS]
    if unknown:
        parser.error(f"no check {unknown[0]}: they are {', '.join(CHECKS)}")
    checks.machine.MAY_SET_POWER_LIMIT = args.set_power_limit
    target = device.find(args.device)
    if args.here:
        suite.run_here(args.names[0], target, args.here)
        return
    options = ("--set-power-limit",) if args.set_power_limit else ()
    results = run(args.names or list(CHECKS), target, args.minutes, args.file, options)
    print(f"{args.file} and {args.file.with_suffix('.md')} are written")
    failed = [name for name, result in results.items() if result["status"] == FAILED]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(names, target, minutes, file, options=()):
    """Run checks, and write all results each time a check ends."""
    begin, end = time.monotonic(), time.monotonic() + 60 * minutes
    results = {"commit": _commit(), "machine": device.machine(target), "checks": {}}
    before = read_json(file) or {}
    previous = before["checks"] if before.get("machine") == results["machine"] else {}
    done = {}

    def run_check(name):
        if time.monotonic() < end:
            done[name] = suite.run(CHECKS[name], target, options)
        else:
            done[name] = previous.get(name) or suite.not_started(CHECKS[name], minutes)
        print(f"{name}: {done[name]['status']} ({done[name]['seconds']} s)", flush=True)

    def keep():
        merged = previous | done
        results["checks"] = {name: merged[name] for name in CHECKS if name in merged}
        suite.write(results, file)

    for name in (name for name in names if CHECKS[name].when == ALONE):
        run_check(name)
        keep()
    workers = max(1, min(MAX_AT_ONCE, len(os.sched_getaffinity(0)) // CORES_PER_CHECK))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        beside = [pool.submit(run_check, name) for name in names if CHECKS[name].when == BESIDE]
        for future in concurrent.futures.as_completed(beside):
            future.result()
            keep()
    for name in (name for name in names if CHECKS[name].when == LAST):
        run_check(name)
        keep()
    print(f"{time.monotonic() - begin:.0f} s in all", flush=True)
    return {name: done[name] for name in names}


def _commit():
    """The commit that is checked out; in a copy without .git the variable COMMIT."""
    finished = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return finished.stdout.strip() or os.environ.get("COMMIT", "unknown")


if __name__ == "__main__":
    main()
