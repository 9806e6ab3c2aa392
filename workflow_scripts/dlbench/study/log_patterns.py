"""Patterns by which the log of any program is read, instead of an importer in Python.

    log:
      step: 'iter (?P<step>\\d+): loss (?P<loss>\\S+), time (?P<step_time_ms>\\S+)ms'
      rate: 'throughput: (?P<items_per_second>\\S+)'
      metrics: {busbw_gb_per_s: 'Avg bus bandwidth\\s*:\\s*(\\S+)'}
      failed: 'NCCL error|CUDA error'

They are the config's `trainers.NAME.log`, or a file in dlbench/imports/patterns/, whose name is a
kind of log. Named groups are columns, with their units in their names (GROUPS). What they mean:
docs/programs.md. dlbench/imports/pattern_importer.py reads logs with them, by the engine RE2, which
takes a time linear in the log for every pattern, so none can hang. To parse them the standard
library suffices.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.log import metrics as log_metrics

FOLDER = plugins.LIBRARY / "imports/patterns"
SUFFIX = ".yaml"
# Seconds in the unit of each time: of one step, since the beginning, of all steps of a line.
STEP_TIME, ELAPSED, WINDOW_TIME = "step_time", "elapsed", "window_time"
UNITS_S = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6}
TIMES_S = {
    f"{time}{unit}": seconds
    for time in (STEP_TIME, ELAPSED, WINDOW_TIME)
    for unit, seconds in UNITS_S.items()
}
STEP_RATE, TOKEN_RATE = "steps_per_second", "tokens_per_second"
ITEM_RATES = (
    *("items_per_second", "images_per_second", "samples_per_second"),
    "sequences_per_second",
)
TOKENS_OF_DEVICE = "tokens_per_second_per_device"  # beside the time of one step
OF_STEPS, OF_ITEMS = (*TIMES_S, STEP_RATE), (*ITEM_RATES, TOKEN_RATE)
SPEEDS = (*OF_STEPS, *OF_ITEMS)
SCORES = ("loss", "top1", "top5", "top1_percent", "top5_percent", "iou", "perplexity")
COUNTS = ("global_batch", "batch_per_device", "devices", "nodes", "steps", "epochs")
TEXTS = ("item_shape", "model", "dataset", "framework_version", "device_model")
# The groups that each pattern may have.
GROUPS = {
    "step": (
        *("step", "loss", "learning_rate", "epoch", "epoch_steps", "epochs_done", "steps"),
        *(TOKENS_OF_DEVICE, *SPEEDS),
    ),
    "rate": (*(f"{STEP_TIME}{unit}" for unit in UNITS_S), STEP_RATE, *OF_ITEMS),
    "evaluation": ("step", "epoch", "examples", *SCORES),
    "settings": (*COUNTS, *TEXTS),
    "failed": (),
}
VALUE, UNIT = "value", "unit"  # the groups of a metric that has both
ONE, SINCE, RUNNING = "of one step", "mean since the last line", "running mean"
MEANS = (SINCE, ONE, RUNNING)
ALL, DEVICE, PROCESS = "all devices", "one device", "one process"
OF = (ALL, DEVICE, PROCESS)
ALONE = "alone"  # rank: lines of several ranks are refused


@dataclass(frozen=True)
class Metric:
    """A number that a program prints once; of several lines the last counts."""

    name: str
    pattern: str
    unit: str = ""
    better: str = ""


@dataclass(frozen=True)
class LogPatterns:
    """The patterns of a log, and what its numbers mean.

    Attributes:
        step: of a line of a step; None, as the other patterns, if there is none.
        rate: of the line with the speed of the whole training.
        evaluation: of a line with the result of an evaluation.
        evaluation_in_step: whether the time of the step line after an evaluation contains it.
        settings: of lines with columns of the runs table.
        failed: of a line that makes the run a failed one.
        warm_up: how many steps are warm-up; None: the first line.
        means: what the speed in a line is the mean of, one of MEANS.
        of: whose rate is printed, one of OF.
        rank: the rank whose lines count, or ALONE; None: of several ranks the slowest.
        counts_from: the number of the first step, and of the first epoch; None: 0 if there is a 0.
        epoch_steps: the steps of an epoch, where lines do not have their number.
        untimed: how many steps at the beginning (of an epoch, if steps begin anew) no time has in
            it; None: with running means those of `warm_up`.
    """

    step: str | None = None
    rate: str | None = None
    evaluation: str | None = None
    evaluation_in_step: bool = False
    settings: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    failed: str | None = None
    warm_up: int | None = None
    means: str = SINCE
    of: str = ALL
    rank: int | str | None = None
    counts_from: int | None = None
    epoch_steps: int | None = None
    untimed: int | None = None

    def all(self) -> Iterator[tuple[str, str]]:
        """(key, pattern) of each pattern; the keys are as in the config."""
        for key in ("step", "rate", "evaluation", "failed"):
            if isinstance(pattern := getattr(self, key), str):
                yield key, pattern
        yield from (("settings", pattern) for pattern in self.settings)
        yield from ((f"metrics.{metric.name}", metric.pattern) for metric in self.metrics)


def names() -> list[str]:
    """The kinds of logs that files of patterns read."""
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def path(name: str) -> Path:
    """The file of patterns of a kind of log."""
    return FOLDER / f"{name}{SUFFIX}"


def parse(entry: Mapping[str, Any], where: str) -> LogPatterns:
    """The patterns of a mapping whose keys and types are checked (config.schema.json).

    `where`: the mapping's place, for messages. Raises Error: a pattern is not valid, or nothing is
    measured by the patterns.
    """
    settings = entry.get("settings", ())
    settings = (settings,) if isinstance(settings, str) else tuple(settings)
    metrics = tuple(
        Metric(name, **(given if isinstance(given, Mapping) else {"pattern": given}))
        for name, given in entry.get("metrics", {}).items()
    )
    plain = {key: value for key, value in entry.items() if key not in ("settings", "metrics")}
    patterns = LogPatterns(settings=settings, metrics=metrics, **plain)
    for key, pattern in patterns.all():
        _check(key, pattern, f"{where}.{key}")
    _check_metrics(patterns, where)
    _check_speeds(patterns, where)
    return patterns


def check_by_re2(patterns: LogPatterns, where: str) -> None:
    """Check each of some patterns. Raises Error: RE2 cannot read one."""
    import pyarrow as pa  # late: few studies have patterns, and trainers have no pyarrow
    import pyarrow.compute as pc

    for key, pattern in patterns.all():
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            why = str(error).partition("Invalid regular expression: ")[2] or error
            raise Error(
                f"{where}.{key}: '{pattern}' is not for RE2: {why}. It has no lookaround as "
                "(?=...) or (?<!...), no reference to a group as \\1, and repeats at most 1000 "
                "times; leave it out, or match more of the line"
            ) from None


def speed(pattern: str | None) -> str | None:
    """The group of a valid pattern that has a time or a rate; None if none has."""
    known = groups_of(pattern) if pattern else ()
    return next((name for name in known if name in SPEEDS), None)


def groups_of(pattern: str) -> tuple[str, ...]:
    """The names of the groups of a valid pattern, in their order."""
    return tuple(re.compile(pattern).groupindex)


def _check(key, pattern, where):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on sets as [[], which RE2 reads alike
            compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        at = getattr(error, "pos", None)
        here = f" at {pattern[at : at + 20]!r}" if at is not None else ""
        raise Error(f"{where}: '{pattern}' is no regular expression: {error}{here}") from None
    if not pattern or (compiled.fullmatch("") and not compiled.groups):
        raise Error(f"{where}: '{pattern}' matches every line; write what the line has")
    if key.startswith("metrics."):
        _check_groups_of_metric(compiled, where)
        return
    allowed = GROUPS[key]
    for name in compiled.groupindex:
        if name not in allowed:
            raise Error(
                f"{where}: there is no number {name!r}{phrases.did_you_mean(name, allowed)}; names "
                f"have their unit, and here there are: {', '.join(allowed) or 'none'}. Parentheses "
                "for alternatives alone are written (?:...)"
            )
    if allowed and not compiled.groupindex:
        raise Error(
            f"{where}: '{pattern}' has no named group, so nothing is read: write "
            f"(?P<{allowed[0]}>...) around a number"
        )
    if compiled.groups > len(compiled.groupindex) and allowed:
        raise Error(
            f"{where}: '{pattern}' has a group without a name: write (?P<{allowed[0]}>...) around "
            "a number, and (?:...) around what is no number"
        )


def _check_groups_of_metric(compiled, where):
    named = set(compiled.groupindex)
    if named - {VALUE, UNIT} or (named and VALUE not in named):
        raise Error(f"{where}: expected (?P<{VALUE}>...), and (?P<{UNIT}>...) where it is printed")
    if compiled.groups != max(len(named), 1):
        raise Error(
            f"{where}: expected one group, the number in parentheses, found {compiled.groups}; "
            "write (?:...) around what is no number"
        )


def _check_metrics(patterns, where):
    seen = {}
    for metric in patterns.metrics:
        if not log_metrics.is_name(metric.name):
            raise Error(
                f"{where}.metrics: expected a name of {log_metrics.NAME_RULE}, "
                f"found {metric.name!r}"
            )
        other = seen.setdefault(metric.pattern, metric.name)
        if other != metric.name:
            raise Error(
                f"{where}.metrics: {metric.name} and {other} have the same pattern, so they would "
                "be one number twice: leave one out"
            )


def _check_speeds(patterns, where):
    """Check that something is measured, and no number is there twice."""
    for key, most in (("step", (SPEEDS,)), ("rate", (OF_STEPS, OF_ITEMS))):
        pattern = getattr(patterns, key)
        for names_of_one in most if pattern else ():
            found = [name for name in groups_of(pattern) if name in names_of_one]
            if len(found) > 1:
                raise Error(
                    f"{where}.{key}: {' and '.join(found)} are one number twice, the speed of a "
                    f"step: name one of them, and write (?:...) around the other"
                )
    if not (speed(patterns.step) or speed(patterns.rate) or patterns.metrics):
        raise Error(
            f"{where}: no group has a time or a rate, so nothing is measured: name one "
            f"{', '.join(GROUPS['rate'])} in step or rate, or give metrics"
        )
    in_step = groups_of(patterns.step) if patterns.step else ()
    if "epoch" in in_step and not {"step", "epoch_steps"} & {*in_step} and not patterns.epoch_steps:
        raise Error(
            f"{where}: of a line of an epoch the number of its steps is needed: epoch_steps"
        )
    if patterns.means == RUNNING and not speed(patterns.step):
        raise Error(f"{where}.means: {RUNNING} is of times or rates in step, and it has none")
    if patterns.evaluation_in_step and not patterns.evaluation:
        raise Error(f"{where}.evaluation_in_step: there is no pattern of an evaluation")
