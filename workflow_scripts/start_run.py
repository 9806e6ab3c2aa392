"""Start the trainer of one run under supervision and write the run's record.

Exit code 0 means that there is a result: trained, or failed in a way that would
repeat itself. Anything else: try again.
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from dlbench.starting import neighbours

WATCH = neighbours.Watch()  # what others use while the rest is imported is the first look at them

from dlbench import Error  # noqa: E402
from dlbench.common import flag_types  # noqa: E402
from dlbench.common.command_line import run_program  # noqa: E402
from dlbench.images import trainer_image  # noqa: E402
from dlbench.log import attempts, event_fields, event_log  # noqa: E402
from dlbench.machine import hardware, limits  # noqa: E402
from dlbench.records import enough, parse_run, run_record, sessions  # noqa: E402
from dlbench.starting import (  # noqa: E402
    fates,
    leftovers,
    refusals,
    start_command,
    start_unreachable,
    supervisor,
)
from dlbench.study import repeats  # noqa: E402
from dlbench.study.runs import Run  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, type=Path, help="event log of the run")
    parser.add_argument("--messages", required=True, type=Path, help="what the trainer prints")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--label", default="", help="of the run, for progress lines")
    parser.add_argument("--position", default="", help="as in 3/36, for progress lines")
    parser.add_argument("--made-from", type=json.loads, default={}, help="digests, as JSON")
    parser.add_argument("--skip", default="", help="record this reason instead of training")
    parser.add_argument(
        "--unless", type=json.loads, help="ids of earlier repeats, and the target they may reach"
    )
    parser.add_argument("--time-limit-s", type=flag_types.real(above=0), default=float("inf"))
    parser.add_argument(
        "--hang-limit-s",
        type=flag_types.real(above=0),
        default=float("inf"),
        help="without a step or the like",
    )
    parser.add_argument(
        "--wait-for-quiet-s", type=flag_types.real(least=0), default=0.0,
        help="most seconds to wait for others to use less than --others-share",
    )  # fmt: skip
    parser.add_argument(
        "--others-share",
        type=flag_types.real(above=0),
        help="of the cores of its devices, above which the run is unstable",
    )
    parser.add_argument("--checkpoint", type=Path, help="where the trainer keeps its checkpoints")
    parser.add_argument("--attempt", type=flag_types.whole(1), default=1)
    parser.add_argument(
        "--attempts",
        type=flag_types.whole(1),
        default=1,
        help="the last one is recorded; one more asks the scheduler what ended it",
    )
    parser.add_argument("--form", type=Path, help="the run's image, as prepare_image.py wrote it")
    parser.add_argument("--bind", action="append", default=[], help="to be seen in a container")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument(
        "--network", default="auto", choices=["auto", "host"],
        help="auto: nobody else reaches the servers of a run on one node, where the kernel lets us",
    )  # fmt: skip
    parser.add_argument("--module", action="append", default=[], help="to be loaded")
    parser.add_argument(
        "--facts", type=json.loads, default={}, help="about workflow and site, for the log, as JSON"
    )
    parser.add_argument(
        "--session", type=json.loads, help="of the workflow that starts it: id, started_at, host"
    )
    parser.add_argument(
        "--external", metavar="KIND", help="another program trains, whose log is of this kind"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="after --: trains, as one process on bare metal"
    )
    args = parser.parse_args()
    run = Run.from_json(args.spec)
    devices = run.devices_per_node * run.copies_per_node
    WATCH.of_run(
        leftovers.mark(args.log),
        args.others_share,
        devices * run.threads_per_device if args.device == "cpu" else None,
    )
    record, label = args.log.with_name("run.json"), args.label or run.label()
    if args.attempt > 1 and _stands(run, record, args.made_from):
        print(f"{label}: its record stands", file=sys.stderr)
        return  # it shared a job with one that failed
    leftovers.end()
    trainer = args.command[1:] if args.command[:1] == ["--"] else args.command
    refused = ("skipped", args.skip) if args.skip else None
    if not refused and args.unless:
        reached = enough.not_needed(args.unless[0], repeats.Target(**args.unless[1]))
        refused = ("skipped", reached) if reached else None
    if not refused and args.attempt > args.attempts:
        attempts.rescue(args.log)
        refused = fates.verdict(args.log)
        if not refused:
            sys.exit(
                f"{label}: {args.attempts} attempts were ended from outside, without a "
                "result; the next start of the workflow tries again"
            )
    form, start, network = None, start_command.NOTHING, None
    if not refused:
        try:
            os.environ.update(start_command.surroundings(run, args.module))
            form = trainer_image.read_form(args.form) if args.form else None
            begun = start_command.start(run, trainer, form, args.device, args.bind)
            if args.external:
                gpus = run.devices_per_node if args.device == "gpu" else 0
                begun = _through_us(begun, args, form, gpus)
            start, network = begun, start_command.network(run, args.network)
        except start_command.NotEntered:
            raise
        except (trainer_image.Unusable, start_command.Nameless) as error:
            refused = "skipped", str(error)
        except Error as error:
            refused = "failed", str(error)
    made_from = {**args.made_from}
    if args.form:
        # Known for certain only now: the image may have been made after the workflow began.
        made_from["environment"] = (
            form["digest"] if form else trainer_image.digest_of_form(args.form)
        )
    watched = supervisor.Watched(
        log=args.log,
        messages=args.messages,
        command=tuple(start_unreachable.command(start.command))
        if network == "loopback"
        else start.command,
        cleanup=start.cleanup,
        label=label,
        position=args.position,
        launch={
            "made_from": made_from,
            "container": start.container,
            "network": network,
            "limits": limits.read(hardware.Files()),  # a container may not see its own
            **start_command.where(),
            "refused": refusals.take(args.log.parent),
            "modules": args.module,
            "session": args.session,
            **args.facts,
        },
        time_limit_s=args.time_limit_s,
        hang_limit_s=args.hang_limit_s,
        checkpoint=args.checkpoint,
        last_attempt=args.attempt >= args.attempts,
        copies=run.copies_per_node,
        watch=WATCH,
        wait_for_quiet_s=args.wait_for_quiet_s,
        restless=sessions.restless(args.session),
    )
    with attempts.lock(args.log):
        if refused:
            supervisor.refuse(watched, *refused)
        elif not supervisor.supervise(watched):
            sys.exit(1)
        try:
            parse_run.parse(run, args.log, record)
        except event_fields.LogError as error:
            # Aside: the workflow deletes what a failed job wrote.
            sys.exit(f"{error}; the log is kept as {event_log.keep_aside(args.log)}")


def _through_us(start, args, form, gpus):
    """Have train_external.py start another program and write our log of it."""
    command = [sys.executable, "workflow_scripts/train_external.py"]
    command += [f"--log={args.log}", f"--spec={args.spec}", f"--kind={args.external}"]
    command += [f"--gpus={gpus}"]
    command += [f"--image-id={form['image_id']}"] if form else []
    return dataclasses.replace(start, command=(*command, "--", *start.command))


def _stands(run, path, made_from):
    """Whether the run's record is there, and of the code, data and environment of today."""
    try:
        record = run_record.read(path)
        run_record.check_files(path.parent, record)
    except run_record.RecordError:
        return False
    found = record["made_from"]
    return (
        record["run_id"] == run.id
        and record["status"] != "skipped"
        and all(value in (None, found.get(name)) for name, value in made_from.items())
    )


if __name__ == "__main__":
    run_program(main)
