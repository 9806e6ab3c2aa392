"""Start the processes of one baseline as those of a run, with launcher and runtime.

They write one file. There are no log, attempts and record: a baseline that fails is measured again
at the next start. If the study names the node, nodes are compared, and a failure there is a result
without numbers: the others' are collected without waiting for it.
"""

import argparse
import dataclasses
import subprocess
import sys
import time
from typing import Any

from dlbench.baselines import rounds
from dlbench.baselines.collectives import MEASURES
from dlbench.common.files import write_json
from dlbench.images import trainer_image
from dlbench.starting import processes, run_lines, start_command, start_unreachable
from dlbench.study.runs import Run


def start(options: argparse.Namespace) -> int | str:
    """Start the command of a baseline and wait for its end.

    Returns what sys.exit takes: 0 if there is a result, else why there is none.

    Raises Error: the run cannot be started so, as in start_command.build, or names another node.
    """
    run = Run.from_json(options.spec)
    title = f"baseline {options.output.stem}"
    start_command.prepare(run, options.module, options.node_address)
    form = trainer_image.read_form(options.form) if options.form else None
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    start_info = start_command.build(by_command(run), command, form, options.device, options.bind)
    command_line = start_info.command
    if start_command.network(run, options.network) == "loopback":
        command_line = tuple(start_unreachable.command(command_line))
    print(f"{title}: starts", file=sys.stderr, flush=True)
    begin, limit_s = time.monotonic(), options.time_limit_s
    options.messages.parent.mkdir(parents=True, exist_ok=True)
    options.messages.write_bytes(b"")
    timed_out = False
    process = processes.start(command_line, options.output, options.messages)
    try:
        code = process.wait(limit_s if limit_s < float("inf") else None)
        ended = processes.describe_exit(code)
    except subprocess.TimeoutExpired:
        ended, timed_out = f"stopped after {limit_s:g} s", True
    finally:
        processes.end(process, options.output)
        if start_info.cleanup:
            subprocess.run(start_info.cleanup, check=False, capture_output=True)
    if process.returncode == 0 and options.output.is_file():
        took_s = time.monotonic() - begin
        print(f"{title}: done, {took_s:.0f} s", file=sys.stderr, flush=True)
        return 0
    reason = f"{rounds.NOT_MEASURED} ({ended}): {run_lines.last_printed(options.messages)}"
    # What a signal ended may have been cancelled.
    if run.node and (timed_out or process.returncode > 0):
        write_json(options.output, failure(run, options, reason))
        again = f"delete {options.output} to measure it again"
        print(f"{title}: {reason}; {again}", file=sys.stderr, flush=True)
        return 0
    return f"{title}: {reason}"


def failure(run: Run, options: argparse.Namespace, reason: str) -> dict[str, Any]:
    """What stands in the file of a baseline that failed: rows without values, and the reason."""
    conditions = {name: getattr(run, name) for name in rounds.CONDITIONS}
    exchanges = any(argument.startswith("--model=") for argument in options.command)
    failed = MEASURES if exchanges else rounds.MEASURES
    return {
        "conditions": conditions | {"site": options.site, "device_kind": options.device},
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **dict.fromkeys(("host", "device_model", "load_average_1min", "hardware_sha256")),
        "versions": {},
        "rows": [{"measure": measure, "unknown": reason} for measure in failed],
    }


def by_command(run: Run) -> Run:
    """The run with its container started by command, as the rule has no container directive."""
    if not start_command.by_directive(run):
        return run
    chosen = trainer_image.options_of(run) | {"start": "command"}
    text = ",".join(f"{name}={value}" for name, value in chosen.items() if value != "")
    return dataclasses.replace(run, runtime_options=text)
