"""One run, from the flags of start_run.py to its record: skipped, failed at once, or trained."""

import argparse
import dataclasses
import functools
import os
import sys
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code
from dlbench.images import trainer_image
from dlbench.log import attempts, event_fields, event_log
from dlbench.machine import hardware, limits, redaction
from dlbench.records import judgement, parse_run, run_record, sessions
from dlbench.starting import (
    fates,
    neighbours,
    power,
    processes,
    run_lines,
    start_command,
    start_unreachable,
    supervisor,
)
from dlbench.study import goals, other_trainers
from dlbench.study.runs import Run

AGAIN = 75  # EX_TEMPFAIL, of sysexits.h
BINDING = {"site-binding": "site_binding", "visible-gpus": "visible_gpus"}  # flags of start_bound
# Errors after which a run is recorded as skipped: it cannot be trained on this machine as it is.
SKIPPING_ERRORS = (trainer_image.Unusable, start_command.NoAddress, start_command.WrongNode)


def start(options: argparse.Namespace, watch: neighbours.Watch) -> int | str:
    """Start the trainer of one run under supervision and write the run's record.

    `watch`: of this node, started before anything else.

    Returns an argument of sys.exit: 0 if there is a result, 1 or a message if another attempt is
    needed, and AGAIN if that attempt is to be made in this process.

    Raises Error: processes of a killed attempt cannot be ended, or Snakemake did not enter the
    container.
    """
    _restore_secrets(options)
    run = Run.from_json(options.spec)
    label = options.label or run.label()
    devices = run.devices_per_node * run.copies_per_node
    watch.set_run(
        processes.mark(options.log),
        options.others_share,
        devices * run.threads_per_device if options.device == "cpu" else None,
    )
    if fates.put_back(options.log, options.messages, functools.partial(_is_valid, run, options)):
        # That job, or another run in it, was then counted as failed.
        print(f"{label}: an earlier job of this start recorded it", file=sys.stderr)
        return 0
    processes.end_leftovers()
    refusal: tuple[Any, ...] | None = _reason_to_skip(options)
    attempt = 1
    if not refusal and options.attempt > 1:
        attempts.rescue(options.log)
        earlier = fates.EarlierAttempts(options.log.parent, (options.session or {}).get("id"))
        attempt = options.attempt - earlier.interrupted
        if attempt > options.attempts or options.attempt > (options.tries or options.attempts):
            refusal = earlier.verdict(logs_steps=not options.external)
            if not refusal:
                return (
                    f"{label}: its attempts were ended from outside, without a result "
                    f"({earlier.describe() or 'none left a log'}); the next start of the workflow "
                    "tries again"
                )
    form, start_info, network = None, start_command.NOTHING, None
    if not refusal:
        try:
            start_command.prepare(run, options.module, options.node_address)
            form = trainer_image.read_form(options.form) if options.form else None
            start_info, network = _command(run, options, form)
        except start_command.NotEntered:
            raise
        except SKIPPING_ERRORS as error:
            refusal = "skipped", str(error)
        except Error as error:
            refusal = "failed", str(error)
    last_attempt = attempt >= options.attempts
    supervised = _supervised_run(
        run, options, label, watch, form, start_info, network, last_attempt
    )
    with attempts.lock(options.log):
        try:
            if refusal:
                supervisor.refuse(supervised, *refusal)
            elif not (outcome := supervisor.supervise(supervised)):
                repeats_here = options.repeat_here and outcome is supervisor.Outcome.REPEAT
                return AGAIN if repeats_here else 1
        except power.Refused as error:
            refusal = "failed", str(error)
            supervisor.refuse(supervised, *refusal)
        try:
            record = options.log.with_name("run.json")
            parse_run.parse(run, options.log, record)
        except event_fields.LogError as error:
            attempts.unlink_open_log(options.log)
            # Moved aside, because Snakemake deletes the outputs of a failed job.
            return f"{error}; the log is kept as {event_log.keep_aside(options.log)}"
        if not refusal or refusal[0] != "skipped":
            fates.link_results(options.log, options.messages)
        attempts.unlink_open_log(options.log)
        if not options.skip:  # the start has printed these reasons
            position, content = options.position, run_record.read(record)
            run_lines.report_result(position, label, options.log, content, options.runs_after)
    return 0


def _restore_secrets(options: argparse.Namespace) -> None:
    """Put the secrets, which came in environment variables, back into the commands."""
    for name in ("power_meter", "power_limit_command"):
        if text := getattr(options, name):
            setattr(options, name, *redaction.restored([text], os.environ))
    options.command = redaction.restored(options.command, os.environ)
    os.environ.pop(redaction.VARIABLE, None)


def arguments_of_attempt(arguments: list[str], attempt: int) -> list[str]:
    """The command line of start_run.py for another attempt: the last number counts.

    >>> arguments_of_attempt(["start_run.py", "--attempt", "1", "--", "train", "--attempt", "1"], 2)
    ['start_run.py', '--attempt', '1', '--attempt=2', '--', 'train', '--attempt', '1']
    """
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:cut], f"--attempt={attempt}", *arguments[cut:]]


def _is_valid(run: Run, options: argparse.Namespace, record: dict[str, Any]) -> bool:
    """Whether a record is that of the run, made by the current code, data and environment."""
    made_from = record["made_from"]
    return record["run_id"] == run.id and all(
        value in (None, made_from.get(name)) for name, value in options.made_from.items()
    )


def _reason_to_skip(options: argparse.Namespace) -> tuple[str, str] | None:
    """("skipped", reason) if the run is not to be trained, or no longer needed; else None."""
    reason = options.skip
    if not reason and options.unless:
        repeat_ids, target = options.unless
        reason = judgement.not_needed(repeat_ids, goals.Target(**target))
    return ("skipped", reason) if reason else None


def _command(run, options, form):
    """How the run is started, and its network."""
    trainer = options.command[1:] if options.command[:1] == ["--"] else options.command
    how = run.command(trainer), form, options.device, options.bind
    if options.external:
        bound = functools.partial(_bound, run, options)
        start_info = _wrapped_external(run, start_command.build(run, *how, bound), options, form)
    else:
        start_info = start_command.build(run, *how)
    return start_info, start_command.network(run, options.network)


def _bound(run: Run, options: argparse.Namespace, program: list[str]) -> list[str]:
    """The command that binds a process of another program, and then starts it."""
    settings = options.external_settings
    # The variables for Python are the program's, not those of this Python.
    command = [sys.executable, "-E", "-s", _program("start_bound.py"), f"--spec={options.spec}"]
    command += [f"--log={options.log}", f"--output={_output(options)}"]
    command += [f"--device={options.device}"]
    command += [f"--{name}={settings[key]}" for name, key in BINDING.items() if settings.get(key)]
    command += ["--share-gpus"] * bool(settings.get("share_gpus"))
    return [*command, "--", *program]


def _wrapped_external(run, start_info, options, form):
    """The Start with train_external.py, which starts another program and writes dlbench's log."""
    settings = options.external_settings
    gpus = run.devices_per_node if options.device == "gpu" else 0
    command = [sys.executable, _program("train_external.py")]
    command += [f"--log={options.log}", f"--spec={options.spec}", f"--kind={options.external}"]
    command += [f"--gpus={gpus}", f"--sample-every-s={settings.get('sample_every_s', 0)}"]
    command += [f"--stop-signal={settings['stop_signal']}"] if "stop_signal" in settings else []
    command += [f"--image-id={form['image_id']}"] if form else []
    command += ["--", *start_info.command]
    if run.copies_per_node > 1:
        command = start_command.copies_command(run, command, sys.executable, options.device)
    return dataclasses.replace(start_info, command=tuple(command))


def _program(name: str) -> str:
    return str(own_code.project_path(f"workflow_scripts/{name}"))


def _output(options: argparse.Namespace) -> Path:
    return options.log.parent / other_trainers.FOLDER


def _supervised_run(run, options, label, watch, form, start_info, network, last_attempt):
    """What the supervisor needs to know of the run."""
    made_from = {**options.made_from}
    if options.form:
        # The image may have been made after the workflow started.
        made_from["environment"] = (
            form["digest"] if form else trainer_image.digest_of_form(options.form)
        )
    gpus, power_limit = run.devices_per_node * run.copies_per_node, None
    if run.power_limit_w:
        power_limit = power.Limits(run.power_limit_w, gpus, options.power_limit_command)
    command = start_info.command
    if network == "loopback":
        command = tuple(start_unreachable.command(command))
    return supervisor.SupervisedRun(
        log=options.log,
        messages=options.messages,
        command=command,
        cleanup=start_info.cleanup,
        label=label,
        position=options.position,
        launch={
            "made_from": made_from,
            "container": start_info.container,
            "network": network,
            "limits": limits.read(hardware.Files()),  # a container may not see its own
            **start_command.job_facts(),
            "refused": fates.take_refusal(options.log.parent),
            "modules": options.module,
            "session": options.session,
            **options.facts,
        },
        time_limit_s=options.time_limit_s,
        hang_limit_s=options.hang_limit_s,
        checkpoint=options.checkpoint,
        last_attempt=last_attempt,
        copies=run.copies_per_node,
        watch=watch,
        wait_for_quiet_s=options.wait_for_quiet_s,
        busy_marker=sessions.busy_marker(options.session),
        power_meter=options.power_meter,
        power_limit=power_limit,
        nodes=run.nodes,
        output=_output(options) if options.external else None,
        **{
            key: options.external_settings[key]
            for key in ("stop_signal", "stop_grace_s")
            if key in options.external_settings
        },
    )
