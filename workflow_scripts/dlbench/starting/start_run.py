"""One run, from the flags of start_run.py to its record: skipped, refused, or trained."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code
from dlbench.images import trainer_image
from dlbench.log import attempts, event_fields, event_log
from dlbench.machine import hardware, limits, redaction
from dlbench.records import enough, parse_run, run_record, sessions
from dlbench.starting import (
    fates,
    leftovers,
    neighbours,
    power_limits,
    refusals,
    start_command,
    start_unreachable,
    supervisor,
)
from dlbench.study import repeats
from dlbench.study.runs import Run

# The run cannot be trained as things are here: it is skipped.
UNSUITED = (trainer_image.Unusable, start_command.Nameless, start_command.Elsewhere)


def start(options: argparse.Namespace, watch: neighbours.Watch) -> int | str:
    """Start the trainer of one run under supervision and write the run's record.

    Args:
        options: the flags of start_run.py.
        watch: on this node, begun before anything else.

    Returns:
        What sys.exit takes: 0 if there is a result, 1 or a message if another attempt is needed.

    Raises:
        Error: what an attempt that was killed left behind cannot be ended or restored, or
            Snakemake did not enter the container.
    """
    _restore_secrets(options)
    run = Run.from_json(options.spec)
    label = options.label or run.label()
    devices = run.devices_per_node * run.copies_per_node
    watch.set_run(
        leftovers.mark(options.log),
        options.others_share,
        devices * run.threads_per_device if options.device == "cpu" else None,
    )
    record = options.log.with_name("run.json")
    if options.attempt > 1 and _stands(run, record, options.made_from):
        print(f"{label}: its record stands", file=sys.stderr)
        return 0  # it shared a job with one that failed
    leftovers.end()
    power_limits.restore_left()
    refusal = _needless(options)
    if not refusal and options.attempt > options.attempts:
        attempts.rescue(options.log)
        refusal = fates.verdict(options.log)
        if not refusal:
            return (
                f"{label}: {options.attempts} attempts were ended from outside, without a "
                "result; the next start of the workflow tries again"
            )
    form, how, network = None, start_command.NOTHING, None
    if not refusal:
        try:
            os.environ.update(start_command.job_variables(run, options.module))
            start_command.see_node(run)
            form = trainer_image.read_form(options.form) if options.form else None
            how, network = _command(run, options, form)
        except start_command.NotEntered:
            raise
        except UNSUITED as error:
            refusal = "skipped", str(error)
        except Error as error:
            refusal = "failed", str(error)
    watched = _watched(run, options, label, watch, form, how, network)
    with attempts.lock(options.log):
        try:
            if refusal:
                supervisor.refuse(watched, *refusal)
            elif not supervisor.supervise(watched):
                return 1
        except power_limits.Refused as error:
            supervisor.refuse(watched, "failed", str(error))
        try:
            parse_run.parse(run, options.log, record)
        except event_fields.LogError as error:
            # Aside: the workflow deletes what a failed job wrote.
            return f"{error}; the log is kept as {event_log.keep_aside(options.log)}"
    return 0


def _restore_secrets(options: argparse.Namespace) -> None:
    """Put the secrets of the config's commands back, which came by the environment."""
    for name in ("power_meter", "power_limit_command"):
        if text := getattr(options, name):
            setattr(options, name, *redaction.restored([text], os.environ))
    options.command = redaction.restored(options.command, os.environ)
    os.environ.pop(redaction.VARIABLE, None)


def _stands(run: Run, path: Path, made_from: dict[str, Any]) -> bool:
    """Whether the run's record is there, and of the code, data and environment of today."""
    try:
        record = run_record.read(path)
        run_record.check_files(path.parent, record)
    except run_record.RecordError:
        return False
    recorded = record["made_from"]
    return (
        record["run_id"] == run.id
        and record["status"] != "skipped"
        and all(value in (None, recorded.get(name)) for name, value in made_from.items())
    )


def _needless(options: argparse.Namespace) -> tuple[str, str] | None:
    """("skipped", reason) if the run is not to be trained, or no longer; else None."""
    reason = options.skip
    if not reason and options.unless:
        repeat_ids, target = options.unless
        reason = enough.not_needed(repeat_ids, repeats.Target(**target))
    return ("skipped", reason) if reason else None


def _command(
    run: Run, options: argparse.Namespace, form: dict[str, Any] | None
) -> tuple[start_command.Start, str | None]:
    """How the run is started, and its network.

    Raises:
        Error: it cannot be started so.
    """
    trainer = options.command[1:] if options.command[:1] == ["--"] else options.command
    how = start_command.build(run, trainer, form, options.device, options.bind)
    if options.external:
        how = _through_us(run, how, options, form)
    return how, start_command.network(run, options.network)


def _through_us(
    run: Run,
    how: start_command.Start,
    options: argparse.Namespace,
    form: dict[str, Any] | None,
) -> start_command.Start:
    """Have train_external.py start another program and write our log of it."""
    gpus = run.devices_per_node if options.device == "gpu" else 0
    command = [sys.executable, str(own_code.here("workflow_scripts/train_external.py"))]
    command += [f"--log={options.log}", f"--spec={options.spec}", f"--kind={options.external}"]
    command += [f"--gpus={gpus}"]
    command += [f"--image-id={form['image_id']}"] if form else []
    return dataclasses.replace(how, command=(*command, "--", *how.command))


def _watched(
    run: Run,
    options: argparse.Namespace,
    label: str,
    watch: neighbours.Watch,
    form: dict[str, Any] | None,
    how: start_command.Start,
    network: str | None,
) -> supervisor.Watched:
    """What the supervisor is told of the run."""
    made_from = {**options.made_from}
    if options.form:
        # Known for certain only now: the image may have been made after the workflow began.
        made_from["environment"] = (
            form["digest"] if form else trainer_image.digest_of_form(options.form)
        )
    gpus, power_limit = run.devices_per_node * run.copies_per_node, None
    if run.power_limit_w:
        power_limit = power_limits.Limits(
            run.power_limit_w, gpus, options.log, options.power_limit_command
        )
    command = how.command
    if network == "loopback":
        command = tuple(start_unreachable.command(command))
    return supervisor.Watched(
        log=options.log,
        messages=options.messages,
        command=command,
        cleanup=how.cleanup,
        label=label,
        position=options.position,
        launch={
            "made_from": made_from,
            "container": how.container,
            "network": network,
            "limits": limits.read(hardware.Files()),  # a container may not see its own
            **start_command.job_facts(),
            "refused": refusals.take(options.log.parent),
            "modules": options.module,
            "session": options.session,
            **options.facts,
        },
        time_limit_s=options.time_limit_s,
        hang_limit_s=options.hang_limit_s,
        checkpoint=options.checkpoint,
        last_attempt=options.attempt >= options.attempts,
        copies=run.copies_per_node,
        watch=watch,
        wait_for_quiet_s=options.wait_for_quiet_s,
        restless=sessions.busy_marker(options.session),
        power_meter=options.power_meter,
        power_limit=power_limit,
        nodes=run.nodes,
    )
