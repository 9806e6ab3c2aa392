"""Runs that another program trains: a command of the config's `trainers`, with the run filled in.

    trainers:
      tf_cnn:
        command: [python3, tf_cnn_benchmarks.py, "--model={model}", "--num_gpus={devices}"]
        log: tf_cnn_benchmarks
        files: [tf_cnn_benchmarks.py]

A block of the matrix selects it by `trainer: tf_cnn`. Framework, model and dataset are then names
of that program; the strategy is one of dlbench's and determines the number of processes. The
command is started as train.py is (launcher, runtime, scheduler), without a shell. The importer of
its kind of log (dlbench/imports/importers), or patterns (log_patterns), read what it prints and
writes into {folder}.

Runs inside images too, so it needs the standard library only.
"""

import functools
import hashlib
import json
import shutil
import string
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import assignments, phrases, plugins, run_fields
from dlbench.common.run_fields import Computing, Learning, Reading
from dlbench.machine import redaction
from dlbench.study import log_patterns, parameters
from dlbench.study.runs import DEFAULTS, FIELDS, Run

BUILT_IN = DEFAULTS["trainer"]
# Placeholders in a command beside the fields of a run.
PLACEHOLDERS = {
    "devices": "nodes x devices_per_node",
    "global_batch": "batch_per_device x devices",
    "python": "the Python of the run's environment",
    "data": "folder of the converted dataset, if dlbench stores it",
    "folder": "where the program may write further logs",
}
RESERVED = frozenset((*FIELDS, *PLACEHOLDERS, parameters.KEY))  # no names of parameters
FREE_NAMES = ("model", "dataset")  # names of the other program, not of files in dlbench
# Fields of which a program of others has its own defaults.
ITS_OWN = run_fields.group(Learning, Reading, Computing)
# Fields in which the program's log must not contradict the run.
COMPARED = ("global_batch", "batch_per_device", "devices", "nodes")
AUTO = "auto"  # kind of a log that importers recognise
FOLDER, PRINTED, PROOF = "output", "printed.log", "containment.json"  # in a run's folder
LOGGED = "logged.jsonl"  # there: the log of a program that uses programs/logger/dlbench_log.py
BOUND = ".bound-{}.json"  # in FOLDER: what a rank was bound to; importers skip hidden files
MOST = {"model_flops_per_item": 10**30, "bytes_per_token": 10**6}  # for an item, for a token
AROUND = ("visible_gpus", "stop_signal", "stop_grace_s")  # keys about what is around a program
# Those of the study of this process, for functions that are given a run without its config.
_trainers: dict[str, dict[str, Any]] = {}


def register(trainers: dict[str, dict[str, Any]], own_names: Iterable[str] = ()) -> None:
    """Register the config's `trainers`, in place of those registered before.

    `own_names`: the parameters of all blocks of the matrix. Raises Error: a command has an unknown
    placeholder, or a file or importer is missing.
    """
    own_names = list(dict.fromkeys(own_names))
    _trainers.clear()
    digest.cache_clear()
    for name, trainer in trainers.items():
        for word in trainer["command"]:
            for field in _placeholders(word, f"trainers.{name}.command"):
                known = [*own_names, *FIELDS, *PLACEHOLDERS]
                if field not in known:
                    raise Error(
                        f"trainers.{name}.command: there is no {{{field}}}"
                        f"{phrases.did_you_mean(field, known)}; there are: {', '.join(known)}, and "
                        "what blocks give under parameters"
                    )
        missing = [file for file in trainer.get("files", []) if not Path(file).exists()]
        if missing:
            raise Error(f"trainers.{name}.files: missing: {', '.join(missing)}")
        _check_log(trainer["log"], f"trainers.{name}.log")
        _trainers[name] = trainer


def _check_log(log, where):
    """Check the kind of a program's log, or the patterns by which it is read."""
    if isinstance(log, dict):
        log_patterns.parse(log, where)
    elif log != AUTO and log not in log_patterns.names():
        try:
            plugins.path("importers", log)
        except plugins.UnknownName as error:
            also = ", ".join(log_patterns.names())
            raise Error(f"{where}: {error}; by patterns: {also}; or give patterns") from None


def trainer(run: Run) -> dict[str, Any]:
    """The config's entry of a run's trainer. Raises Error: there is none."""
    try:
        return _trainers[run.trainer]
    except KeyError:
        raise Error(
            f"no trainer {run.trainer!r}{phrases.did_you_mean(run.trainer, _trainers)}; "
            f"there are: {', '.join([BUILT_IN, *_trainers])}"
        ) from None


def check_parameters(run: Run, in_formulas: Container[str] = ()) -> None:
    """Check that a command takes the parameters of a run, and no others.

    `in_formulas`: names by which fields of the run were computed. Raises Error: one is missing, or
    without effect.
    """
    own = parameters.typed(run.trainer_parameters)
    where = f"trainers.{run.trainer}.command"
    named = {field for word in trainer(run)["command"] for field in _placeholders(word, where)}
    if missing := sorted(named - RESERVED - own.keys()):
        raise Error(
            f"{where} names {{{missing[0]}}}, which this block does not give; add it under "
            f"parameters, as in parameters: {{{missing[0]}: [1, 2]}}"
        )
    if unused := [name for name in own if name not in named and name not in in_formulas]:
        raise Error(
            f"{where} does not use the parameter {unused[0]}: write {{{unused[0]}}} where the "
            "program takes it, or leave the parameter out"
        )


def unstated(run: Run) -> set[str]:
    """The fields of ITS_OWN that neither the block of another program nor its command says."""
    words = " ".join(_trainers.get(run.trainer, {}).get("command", ()))
    said = run.values().keys() | {name for name in ITS_OWN if f"{{{name}}}" in words}
    return {*ITS_OWN} - said if run.is_external else set()


def precision(run: Run) -> str | None:
    """What a run computes in; None if neither its block, its command nor the config say it."""
    if "precision" not in unstated(run):
        return run.precision
    said = _trainers.get(run.trainer, {}).get("precision", {})
    return next((said[text] for text in said if text in run.trainer_parameters), None)


def stated(run: Run, key: str) -> float | None:
    """What the config says in a key of MOST of a run's trainer; None if it says nothing.

    Raises Error: the config's formula has no value above 0 for this run.
    """
    text = _trainers.get(run.trainer, {}).get(key)
    if text is None or not isinstance(text, str):
        return text
    where = f"trainers.{run.trainer}.{key}"
    fields = {name: getattr(run, name) for name in FIELDS}
    try:
        value = parameters.formula_of_run(text, fields, run.trainer_parameters)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    if not 0 < value <= MOST[key]:
        expected = f"at most {MOST[key]:g}" if value > MOST[key] else "more than 0"
        raise Error(f"{where}: expected {expected}, found {float(value):g}, the value of {text!r}")
    return float(value)


def needs(run: Run, placeholder: str) -> bool:
    """Whether the command of a run's trainer has this one of PLACEHOLDERS."""
    where = f"trainers.{run.trainer}.command"
    return any(placeholder in _placeholders(word, where) for word in trainer(run)["command"])


def command(
    run: Run, python: str, data: str, folder: str, template: list[str] | None = None
) -> list[str]:
    """The command of one process that trains a run.

    `template`: the command with placeholders; None: that of the config.
    """
    own = parameters.typed(run.trainer_parameters)
    values = {
        **{name: assignments.plain(value) for name, value in own.items()},
        **{name: getattr(run, name) for name in FIELDS},
        "devices": run.devices,
        "global_batch": run.global_batch,
        "python": python,
        "data": data,
        "folder": folder,
    }
    return [word.format(**values) for word in template or trainer(run)["command"]]


def check_secrets(run: Run) -> None:
    """Check that the command of a run's trainer has its secrets.

    Raises Error: they are hidden, as in the config of an archive.
    """
    if any(redaction.HIDDEN in word for word in trainer(run)["command"]):
        raise Error(
            f"trainers.{run.trainer}.command: {redaction.HIDDEN} replaces a secret, as in "
            "archives: put the secret there, and start again"
        )


@functools.cache
def digest(name: str) -> str:
    """Digest of a trainer's command, the content of its files, and its patterns, without secrets.

    So the trainer of an archive, in which secrets are hidden, has the same digest. Other patterns
    train its runs again, since they may change any number; another importer of the log does not.
    """
    entry = _trainers[name]
    command = redaction.redact_command(entry["command"])
    total = hashlib.sha256(json.dumps(command).encode())
    if isinstance(entry["log"], dict):
        total.update(json.dumps(entry["log"], sort_keys=True).encode())
    for path in map(Path, entry.get("files", [])):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                # Relative paths: a copy in another folder is the same trainer.
                name = file.relative_to(path.parent).as_posix()
                total.update(f"\n{name} {content}".encode())
    return total.hexdigest()


def unsupported(run: Run) -> str | None:
    """Why another program cannot train a run; None if it can, or if dlbench trains it."""
    if not run.is_external:
        return None
    if run.profile:
        return "profile is for the trainer dlbench only: leave it out"
    if run.launcher == "kubernetes":
        return "launcher kubernetes starts the trainer dlbench only"
    program = trainer(run)["command"][0]
    if run.runtime == DEFAULTS["runtime"] and "{" not in program and not shutil.which(program):
        return f"trainer {run.trainer}: program {program} is not on this machine's path"
    return None


def with_marker_copied(run: Run, command: list[str], marker: str) -> list[str]:
    """A command that copies the image's marker into the run's folder, then trains there."""
    proof = f"results/runs/{run.id}/{FOLDER}/{PROOF}"
    return ["sh", "-c", f'cat /{marker} > "$0" && exec "$@"', proof, *command]


def log_variables(run: Run, folder: Path) -> dict[str, str]:
    """The variables by which programs/logger/dlbench_log.py knows its file and the warm-up.

    `folder`: where the program may write logs.
    """
    path = str((folder / LOGGED).absolute())
    return {"DLBENCH_LOG": path, "DLBENCH_WARMUP_STEPS": str(run.warmup_steps)}


def _placeholders(word, where):
    """The names in braces. Raises Error: there is more than a name between them."""
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise Error(f"{where}: {word!r}: {error}; for a brace itself write two") from error
    for _, field, spec, conversion in parts:
        if field is not None and (spec or conversion or not field.isidentifier()):
            raise Error(f"{where}: {word!r}: expected a name between braces, as in {{model}}")
    return [field for _, field, _, _ in parts if field is not None]
