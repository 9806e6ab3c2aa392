"""What is to be done for a run: whether it has a valid result, and whether it needs one.

- A result is made from code, data and environment, of which its record has digests.
- The digest of the code covers what can change how a run trains and how fast. Code that only
  describes the machine, counts FLOPs, rejects wrong input or writes messages is left out;
  `dlbench retry` repeats runs that failed in such code. A run's dataset is in the digest of its
  data, not of its code.
- Whether a combination needs further repeats follows from the width of its interval so far.
"""

import dataclasses
import functools
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from dlbench.common import own_code, phrases, plugins
from dlbench.images import trainer_image
from dlbench.log import event_fields, event_log, metrics
from dlbench.log.event_fields import SUCCEEDED
from dlbench.records import belief, run_record
from dlbench.records.run_record import RecordError
from dlbench.study import contradictions, goals, other_trainers, trainer_environments
from dlbench.study.runs import PLUGIN_FOLDERS, Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs
from dlbench.trainer.tasks import TASKS

EXECUTED = {key: folder for key, folder in PLUGIN_FOLDERS.items() if key != "dataset"}
# Files of machine/ that decide which GPUs and cores a process uses, or what is measured of them.
# The others only describe the machine.
MEASURING = ("gpus.py", "binding.py")
CANNOT_CHANGE_RESULTS = frozenset(
    [path for path in (plugins.LIBRARY / "machine").glob("*.py") if path.name not in MEASURING]
    # Of each framework: measure the machine or trace steps after the run, or count FLOPs.
    + [
        path
        for name in ("measuring.py", "flops.py")
        for path in (plugins.LIBRARY / "trainer").glob(f"*/{name}")
    ]
    + [
        plugins.LIBRARY / name
        for name in (
            "common/command_line.py",  # refuses numbers out of bounds and unknown names
            "common/phrases.py",
            "common/run_fields.py",  # defaults, on which run ids depend, never change
            "common/terminal.py",
            "log/event_fields.py",  # refuses damaged logs
            "trainer/calibration.py",  # measures the machine, after the run
            "trainer/profiling.py",  # traces further steps, after the run
            "trainer/containment.py",  # checks where a run is, and refuses
            "trainer/description.py",
            "trainer/model_flops.py",
            "trainer/reading/inputs.py",  # refuses what does not fit
        )
    ]
)

# Files that only some runs execute: {file: (field, its values in such runs)}.
OPTIONAL_CODE = {
    plugins.LIBRARY / "trainer/reading/page_cache.py": ("page_cache", inputs.PAGE_CACHES[1:]),
    plugins.LIBRARY / "trainer/pytorch/dcp.py": ("checkpoint_writer", ("dcp", "dcp_async")),
}


def training_code(run: Run) -> list[str]:
    """dlbench's files that training this run executes, relative to the workflow's folder."""
    if run.is_external:
        return []
    return list(_training_code(*_executed(run)))


def data_code(dataset: str) -> list[str]:
    """The files that converting a dataset executes."""
    path = plugins.path("datasets", dataset)
    return own_code.executed_files("convert_dataset.py", path, without=CANNOT_CHANGE_RESULTS)


class Basis(NamedTuple):
    """What decides, beside a run's fields and dlbench's files, whether its result is valid.

    Attributes:
        adopted: {dataset: digest} of the datasets that others converted.
        images: the config's `images`.
        time_limit_s: the limit of the study; None to ignore limits.
    """

    adopted: dict[str, str] = {}
    images: dict[str, Any] = {}
    time_limit_s: float | None = None

    @property
    def without_limit(self) -> "Basis":
        return self._replace(time_limit_s=None)


NO_SETTINGS = Basis()


def made_from(run: Run, basis: Basis = NO_SETTINGS) -> dict[str, str | None]:
    """Digests of what a run's result depends on beside the run's fields.

    For a run in an image, `image` is the digest of its source (None if that is not on this machine)
    and `environment` that of the image (None until it is made).
    """
    if run.is_external:
        code_digest = other_trainers.digest(run.trainer)
    else:
        code_digest = _code_digest(*_executed(run))
    data = basis.adopted.get(run.dataset, recipe(run.dataset)) if has_data(run) else ""
    digests = {"code": code_digest, "data": data}
    if not plugins.constants("runtimes", run.runtime)["CONTAINED"]:
        lock = _lock_digest(run.environment) if trainer_environments.has_environment(run) else ""
        return {**digests, "environment": lock}
    settings = trainer_image.settings(run.environment, basis.images)
    identity, digest = _image(run.environment, json.dumps(settings, sort_keys=True))
    return {**digests, "image": identity, "environment": digest}


def has_data(run: Run) -> bool:
    """Whether a run reads a dataset that dlbench stores; another program may have its own."""
    is_stored = not run.is_external or other_trainers.needs(run, "data")
    return is_stored and bool(recipe(run.dataset))


@functools.cache
def recipe(dataset: str) -> str:
    """Digest of the code that converts a dataset; "" if no shards are stored for it."""
    if not plugins.is_known("datasets", dataset):
        return ""  # another program's
    if plugins.constants("datasets", dataset)["SYNTHETIC"]:
        return ""
    return own_code.digest(data_code(dataset))


def outdated(
    run: Run, record: dict[str, Any], can_run: bool = True, basis: Basis = NO_SETTINGS
) -> str:
    """Why an undamaged record is no longer valid, or "". `can_run`: as in `state`."""
    current = made_from(run, basis)
    done = "recorded" if record["status"] == "skipped" else "trained"
    done += f" for study {study}" if (study := record["provenance"].get("study")) else ""
    if difference := describe_changes(run, current, record["made_from"], done):
        return difference
    if record["status"] == "skipped" and can_run:
        return f"was skipped and can be trained now: {record['message']}"
    stopped_at = record["provenance"].get("time_limit_s")
    if stopped_at and basis.time_limit_s and stopped_at < basis.time_limit_s:
        return f"was stopped at {stopped_at:g} s; time_limit_s is {basis.time_limit_s:g} now"
    return ""


def describe_changes(
    run: Run, now: dict[str, str | None], before: dict[str, Any], done: str = "trained"
) -> str:
    """Which parts of `made_from` have changed; "" if none. A part that is None now is unchanged.

    `done`: what was done to the run when `before` was written.
    """
    names = [key for key, value in now.items() if value is not None and before.get(key) != value]
    if not names:
        return ""
    each = (_changed_files(run, name, before.get(name)) for name in names)
    files = list(dict.fromkeys(itertools.chain(*each)))
    unnamed = len(files) - run_record.MAX_FILES_NAMED
    more = f" and {phrases.counted(unnamed, 'more file')}" if unnamed > 0 else ""
    which = f": {', '.join(files[: run_record.MAX_FILES_NAMED])}{more}" if files else ""
    return f"{' and '.join(names)} changed since it was {done}{which}"


def _changed_files(run, name, before):
    """The files behind a changed part of `made_from`, as far as they are known."""
    if name == "code" and run.is_external:
        return [f"command, files or patterns of trainers.{run.trainer}"]
    if name == "code":
        return own_code.changed_files(before, training_code(run))
    if name == "data" and recipe(run.dataset):
        return own_code.changed_files(before, data_code(run.dataset))
    if name == "environment" and not plugins.constants("runtimes", run.runtime)["CONTAINED"]:
        return [f"{trainer_environments.ENVIRONMENTS}/{run.environment}/uv.lock"]
    return []


def _executed(run):
    """The values that determine which of dlbench's files a run executes."""
    # Lists are faster than generators, and this is called for each run.
    unused = [
        path for path, (name, values) in OPTIONAL_CODE.items() if getattr(run, name) not in values
    ]
    return run.framework, frozenset(unused), *[getattr(run, key) for key in EXECUTED]


@functools.cache
def _training_code(framework, unused, *names):
    files = [
        plugins.path(framework, "engine"),
        *(
            plugins.path(engine.plugin_kind_of(framework, folder, name), name)
            for folder, name in zip(EXECUTED.values(), names, strict=True)
        ),
    ]
    model = plugins.constants(engine.plugin_kind(framework, "models"), names[0])
    if shared := model.get("CONSTANTS_OF"):
        files.append(plugins.path(shared, names[0]))
    task = model["TASK"]
    if task in TASKS and TASKS[task].KIND != "text":
        unused |= {plugins.LIBRARY / "trainer/reading/text.py"}
    return tuple(
        own_code.executed_files("train.py", *files, without=CANNOT_CHANGE_RESULTS | unused)
    )


@functools.cache
def _code_digest(*names):
    return own_code.digest(_training_code(*names))


@functools.cache
def _image(name, settings):
    """(digest of an image's source, digest of the image); None where unknown on this machine."""
    return trainer_image.identity_and_digest(name, json.loads(settings))


@functools.cache
def _lock_digest(environment):
    return trainer_environments.lock_digest(trainer_environments.folder(environment))


class State(Enum):
    """What is to be done for a run: nothing, parse its log, or train it.

    Runs that are missing, stale or damaged are trained. The logs of damaged ones are moved aside.
    """

    CURRENT = "current"
    UNREAD = "unread"
    MISSING = "missing"
    STALE = "stale"
    DAMAGED = "damaged"


def state(run: Run, can_run: bool = True, basis: Basis = NO_SETTINGS) -> tuple[State, str]:
    """(State, reason): whether a run's record is valid, and if not, why; "" for current runs.

    `can_run`: False if this machine would have to skip the run.
    """
    return state_and_record(run, can_run, basis)[:2]


def state_and_record(
    run: Run, can_run: bool = True, basis: Basis = NO_SETTINGS
) -> tuple[State, str, dict[str, Any] | None]:
    """(State, reason, record) of a run, as `state`; the record is None unless it is valid."""
    place = run_record.folder(run.id)
    if not place.is_dir():
        return State.MISSING, "not trained yet", None
    if not any((place / name).exists() for name in ("run.json", "train.jsonl")):
        return State.STALE, "its last attempt left no result", None
    try:
        record = run_record.read_whole(place, run.id)
    except RecordError as error:
        return *_state_by_log(run, place, basis, str(error)), None
    if record["parser_version"] != run_record.PARSER_VERSION:
        reason = f"read by version {record['parser_version']} of the parser"
        return *_state_by_log(run, place, basis, reason, sound=True), None
    reason = outdated(run, record, can_run, basis)
    if not reason and record["provenance"].get("before_first_step"):
        reason = f"failed before its first step, so measured nothing: {record['message']}"
    return (State.STALE, reason, None) if reason else (State.CURRENT, "", record)


def _state_by_log(run, place, basis, reason, sound=False):
    """The state of a run without a valid record: whole, up-to-date logs only need parsing.

    `sound`: whether the record is undamaged: its logs were parsed before and have their sizes.
    """
    log = place / "train.jsonl"
    try:
        first = next(event_log.read(log), {})
        made = first.get("made_from") if first.get("event") == "launch" else None
        if not isinstance(made, dict) or not event_log.final_run_end(log):
            return State.STALE, reason
        # Checks that read whole logs come last: if the code has changed they are not needed.
        if damage := belief.describe_damage(run, log, whole=False):
            return State.DAMAGED, f"{reason}; {damage}"
        if difference := describe_changes(run, made_from(run, basis), made):
            return State.STALE, difference
        damage = belief.describe_changed_log(run, place) or (
            not sound and belief.describe_damage(run, log)
        )
    except OSError as error:
        return State.STALE, f"{reason}; {error}"
    except event_fields.LogError as error:
        damage = str(error)
    return (State.DAMAGED, f"{reason}; {damage}") if damage else (State.UNREAD, reason)


def earlier_repeats(run: Run) -> list[str]:
    """The ids of the repeats before this one."""
    return [dataclasses.replace(run, repeat=number).id for number in range(1, run.repeat)]


def not_needed(run_ids: Iterable[str], target: goals.Target) -> str | None:
    """Why a combination needs no further repeat; None if it needs one, or may need one.

    `run_ids`: of the repeats so far, in their order.
    """
    is_throughput = target.metric == goals.THROUGHPUT
    name = "throughput" if is_throughput else target.metric
    values = []
    for number, run_id in enumerate(run_ids, start=1):
        try:
            record = run_record.read(run_record.folder(run_id) / "run.json")
        except run_record.RecordError:
            return None  # still to be done
        numbers = contradictions.withheld(record["summary"])  # of another program's log
        value = metrics.value_of(numbers, target.metric)
        if record["status"] in SUCCEEDED and value and value > 0:
            values.append(value)
        if number < target.min_repeats:
            continue
        if not values:
            named = "" if is_throughput else f" with a {target.metric} above 0"
            return f"not needed: none of the first {number} repeats completed{named}"
        reached = half_width(values)
        if reached is not None and reached <= target.interval:
            return (
                f"not needed: the {name} is known to {reached:.2%} after {number} repeats, "
                f"target_interval is {target.interval:.2%}"
            )
    return None


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of a geometric mean, relative to it; None for fewer than two.

    >>> half_width([100.0, 100.0, 100.0])
    0.0
    """
    if not 2 <= len(values) <= len(goals.T_975) + 1:
        return None
    logs = [math.log(value) for value in values]
    return math.expm1(goals.T_975[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs)))
