"""The matrix of a config: its blocks expanded into combinations, and those into runs.

Checks of one run that a schema cannot express (names of files, values that exclude each other) are
here. Every error names the block and the key, the value found, what is allowed and the nearest
valid name.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from dlbench import Error, launchers
from dlbench.common import host_lists, options, own_code, phrases, plugins
from dlbench.common.files import canonical_json
from dlbench.log import event_log
from dlbench.study import config_schema, other_trainers, trainer_environments
from dlbench.study.config_schema import ConfigError, check_name
from dlbench.study.runs import DEFAULTS, FIELDS, PLUGIN_FOLDERS, Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

# Fields that say one thing in several ways.
ALTERNATIVES = ({"batch_per_device", "global_batch"}, {"steps", "epochs"})


@dataclass(frozen=True)
class Excluded:
    """A combination that a block leaves out, and why."""

    block: str
    values: dict
    reason: str


def expand(
    block: dict[str, Any], where: str
) -> tuple[list[tuple[str, dict[str, Any]]], list[Excluded]]:
    """The combinations of one block, and those it excludes.

    Returns:
        A list of (place in the config, mapping), and one of Excluded.

    Raises:
        ConfigError: a name is unknown, or an `exclude` entry matches nothing.
    """
    axes = _axes(block, where)
    combinations = _products(axes, where)
    rules = block.get("exclude", [])
    matching = lookup([{k: v for k, v in rule.items() if k != "reason"} for rule in rules])
    kept, excluded, used = [], [], 0
    for combination in combinations:
        matched = matching(functools.partial(_value_of, combination))
        used |= matched
        if not matched:
            kept.append((where, combination))
        else:
            rule = rules[_lowest_bit(matched)]
            reason = rule.get("reason", "excluded in the config")
            excluded.append(Excluded(block["name"], combination, reason))
    if (unused := _lowest_bit(~used)) < len(rules):
        _raise_unmatched(rules[unused], combinations, f"{where}.exclude[{unused}]")
    single = {key: values[0] for key, values in axes.items() if len(values) == 1}
    for index, entry in enumerate(block.get("include", [])):
        place = f"{where}.include[{index}]"
        # What an entry says takes the place of what the block says, also in other words.
        said = [key for group in ALTERNATIVES if group & entry.keys() for key in group]
        inherited = {key: value for key, value in single.items() if key not in said}
        kept += [(place, one) for one in _products(_axes({**inherited, **entry}, place), place)]
    return kept, excluded


def _products(axes, where):
    config_schema.check_product({key: len(values) for key, values in axes.items()}, where)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def lookup(entries: Sequence[Mapping[str, Any]]) -> Callable[[Callable[[str], Any]], int]:
    """A function that says which of some entries match a run, without trying one by one.

    Args:
        entries: each gives fields one value or several. One without fields matches nothing.

    Returns:
        A function of one that gives the value of a field. It returns an integer whose bit n is
        set if entry n matches.
    """
    everything = sum(1 << place for place, entry in enumerate(entries) if entry)
    by_value: dict[str, dict[Any, int]] = {}
    silent: dict[str, int] = {}  # the entries that do not name a field, by the field
    for place, entry in enumerate(entries):
        for key, values in entry.items():
            silent[key] = silent.get(key, everything) & ~(1 << place)
            places = by_value.setdefault(key, {})
            for value in map(_hashable, as_list(values)):
                places[value] = places.get(value, 0) | 1 << place

    def matching(value_of):
        found = everything
        for key, places in by_value.items():
            found &= silent[key] | places.get(_hashable(value_of(key)), 0)
        return found

    return matching


def _hashable(value):
    return canonical_json(value) if isinstance(value, dict | list) else value


def _lowest_bit(number):
    return (number & -number).bit_length() - 1


def unmatched(entries: Sequence[Mapping[str, Any]], runs: Iterable[Run]) -> int | None:
    """The place of the first of some entries that matches none of the runs; None if all do."""
    matching, used = lookup(entries), 0
    for run in runs:
        used |= matching(functools.partial(getattr, run))
    place = _lowest_bit(~used)
    return place if place < len(entries) else None


def _raise_unmatched(rule, combinations, where):
    """Say why an `exclude` entry leaves nothing out."""
    wanted = {key: as_list(value) for key, value in rule.items() if key != "reason"}
    if not wanted:
        raise ConfigError(f"{where}: expected fields of a run beside the reason, found none")
    for key, values in wanted.items():
        there = list(dict.fromkeys(_value_of(one, key) for one in combinations))
        if not set(values) & set(there):
            raise ConfigError(
                f"{where}.{key}: no combination of this block has {_joined(values)}"
                f"{phrases.did_you_mean(values[0], there)}; there are: {_joined(there)}"
            )
    raise ConfigError(
        f"{where}: no combination of this block has all of this together: "
        + "; ".join(f"{key} {_joined(values)}" for key, values in wanted.items())
    )


def _joined(values):
    return ", ".join(map(str, values))


def _axes(block, where):
    """The fields of a run that a block names, each as a list, its names checked."""
    axes = {
        key: as_list(value)
        for key, value in block.items()
        if key in FIELDS or key == "global_batch"
    }
    ours = other_trainers.BUILT_IN in axes.get("trainer", [other_trainers.BUILT_IN])
    for key, folder in PLUGIN_FOLDERS.items():
        names = axes.get(key, []) if ours or key not in other_trainers.FREE_NAMES else []
        frameworks = axes.get("framework", [engine.DEFAULT])
        kinds = [engine.kind(framework, folder) for framework in frameworks]
        for kind, name in itertools.product(kinds, names):
            # A strategy that only one of the frameworks has makes the others' runs skipped.
            if key != "strategy" or not any(name in plugins.names(other) for other in kinds):
                check_name(kind, name, f"{where}.{key}")
    if "node" in axes:
        axes["node"] = _named_nodes(axes["node"], f"{where}.node")
    return axes


def _named_nodes(values, where):
    """The names of nodes in lists as n[1-3]."""
    try:
        names = [name for value in values for name in host_lists.expand_hosts(value)]
    except Error as error:
        raise ConfigError(f"{where}: {error}") from None
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ConfigError(f"{where}: expected each node once, found twice: {_joined(twice)}")
    return names


def as_list(value: Any) -> list[Any]:
    """The values of a key as a list, be it one value or several."""
    return value if isinstance(value, list) else [value]


def _value_of(combination, key):
    return combination.get(key, DEFAULTS.get(key))


def run_from_values(values: dict[str, Any], where: str, images: dict[str, Any]) -> Run:
    """The run of one combination, or a ConfigError that says why it cannot be."""
    values = _with_batch_per_device(values, where)
    missing = [key for key in ("model", "dataset") if key not in values]
    if missing:
        raise ConfigError(f"{where}: no {', '.join(missing)} given")
    if ("steps" in values) == ("epochs" in values):
        given = "both" if "steps" in values else "neither"
        raise ConfigError(f"{where}: expected either steps or epochs, found {given}")
    framework = values.get("framework", DEFAULTS["framework"])
    strategy = engine.strategy_of(
        SimpleNamespace(framework=framework, strategy=values.get("strategy", DEFAULTS["strategy"]))
    )
    runtime = values.get("runtime", DEFAULTS["runtime"])
    for kind, owner, known in (
        ("strategy", values.get("strategy", DEFAULTS["strategy"]), strategy.OPTIONS),
        ("runtime", runtime, plugins.constants("runtimes", runtime)["OPTIONS"]),
    ):
        key = f"{kind}_options"
        if key in values:
            try:
                values = {**values, key: options.canonical_text(kind, owner, known, values[key])}
            except Error as error:
                raise ConfigError(f"{where}.{key}: {error}") from None
    own = {"launcher": strategy.launcher, "environment": engine.environment(framework)}
    run = Run(**{**own, **values})
    if run.is_external:
        _check_trainer(run, where)
    else:
        _check_task(run, where)
        if reason := launchers.describe_misfit(run):
            raise ConfigError(f"{where}.launcher: {reason}")
    if run.node and run.nodes > 1:
        raise ConfigError(
            f"{where}.node: {run.node} is one node, and the run has {run.nodes}: leave out one of "
            "node and nodes"
        )
    if run.epochs and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} takes steps, not epochs: it learns nothing")
    if run.evaluate == "yes" and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} learns nothing that could be evaluated")
    if not trainer_environments.has_environment(run) and runtime == DEFAULTS["runtime"]:
        return run
    if "environment" not in values:
        run = _with_environment(run, images)
    there, reason = environments(), f"no folder envs/{run.environment}"
    if plugins.constants("runtimes", runtime)["CONTAINED"]:
        there, reason = sorted({*there, *images}), f"{reason} and no such image under images"
    if run.environment not in there:
        raise ConfigError(
            f"{where}.environment: {reason}"
            f"{phrases.did_you_mean(run.environment, there)}; there are: {', '.join(there)}"
        )
    if not run.is_external and (runtime == DEFAULTS["runtime"] or run.environment not in images):
        _check_environment(run, where)
    return run


def _with_environment(run, images):
    """A run whose config names no environment, with the one that a Python of this machine fits.

    Left as it is where no Python of this machine trains it: another program's run, one that is
    started elsewhere, one in an image that the config describes. An image that is built from an
    environment follows the choice.
    """
    elsewhere = launchers.starts_elsewhere(run.launcher)
    if run.is_external or elsewhere or run.environment in images:
        return run
    environment = trainer_environments.chosen(run.environment)
    return run if environment == run.environment else replace(run, environment=environment)


def _with_batch_per_device(values, where):
    """The values of a combination, with global_batch dealt out over its devices."""
    if ("global_batch" in values) == ("batch_per_device" in values):
        given = "both" if "global_batch" in values else "neither"
        raise ConfigError(
            f"{where}: expected either batch_per_device or global_batch, found {given}"
        )
    if "global_batch" not in values:
        return values
    values = dict(values)
    total = values.pop("global_batch")
    devices = values.get("nodes", 1) * values.get("devices_per_node", 1)
    if total % devices:
        raise ConfigError(
            f"{where}: a global_batch of {total} cannot be shared evenly by {devices} devices; "
            "exclude that combination or choose another global_batch"
        )
    return {**values, "batch_per_device": total // devices}


def check_gate(must_reach: dict[str, float], run: Run, where: str) -> dict[str, float]:
    """Check that a run will have the scores of its learning gate, and return them."""
    if must_reach and run.mode == inputs.ALONE:
        raise ConfigError(f"{where}.must_reach: mode input has no model, so it learns nothing")
    scores = event_log.SCORES
    if not run.is_external:
        task = plugins.constants(engine.kind(run.framework, "models"), run.model)["TASK"]
        scores = plugins.constants(engine.kind(run.framework, "tasks"), task)["SCORES"]
    for name in must_reach:
        if name == "final_loss":
            continue
        if name not in scores:
            raise ConfigError(
                f"{where}.must_reach: {run.model} has no {name}; it has: {', '.join(scores)}"
            )
        evaluated = run.evaluate == "yes" or (run.evaluate == "auto" and run.epochs)
        if run.mode != "train" or not evaluated:
            raise ConfigError(
                f'{where}.must_reach: {name} needs an evaluation; give epochs, or evaluate: "yes"'
            )
    return must_reach


def _check_trainer(run, where):
    """Check that there is the other program that is to train a run."""
    try:
        other_trainers.trainer(run)
    except Error as error:
        raise ConfigError(f"{where}.trainer: {error}") from None
    if other_trainers.needs(run, "data"):
        check_name("datasets", run.dataset, f"{where}.dataset")


def _check_task(run, where):
    """Check that a model can learn from a dataset."""
    if run.framework not in engine.names():
        raise ConfigError(
            f"{where}.framework: {run.framework} needs a trainer of its own (trainers); "
            f"dlbench's is of {', '.join(engine.names())}"
        )
    tasks = engine.kind(run.framework, "tasks")
    task = plugins.constants(engine.kind(run.framework, "models"), run.model).get("TASK")
    check_name(tasks, task, f"{where}: TASK of models/{run.model}.py")
    dataset = plugins.constants("datasets", run.dataset)
    kind = plugins.constants(tasks, task)["KIND"]
    if not dataset["SYNTHETIC"] and kind != dataset["KIND"]:
        raise ConfigError(
            f"{where}: model {run.model} learns {task} and needs data of the kind {kind}; "
            f"{run.dataset} is of the kind {dataset['KIND']}"
        )
    if dataset["SYNTHETIC"] and run.epochs:
        raise ConfigError(f"{where}: dataset {run.dataset} has no epochs; give steps")
    if dataset["SYNTHETIC"] and run.evaluate == "yes":
        raise ConfigError(f"{where}: dataset {run.dataset} has no held-out items to evaluate")


def _check_environment(run, where):
    """Check that a folder in envs/ is not that of another framework.

    One that locks none of ours is let through: it may have a build under a name of its own.
    """
    if run.environment == engine.environment(run.framework):
        return
    there = _frameworks_in(run.environment)
    if there and run.framework not in there:
        fitting = [name for name in environments() if run.framework in _frameworks_in(name)]
        raise ConfigError(
            f"{where}.environment: envs/{run.environment} is an environment of "
            f"{' and '.join(sorted(there))}, and the run is one of {run.framework}"
            f"{phrases.did_you_mean(run.environment, fitting)}; environments with {run.framework}: "
            f"{', '.join(fitting)}. Frameworks whose environments differ need a block each"
        )


@functools.cache
def _frameworks_in(environment):
    """The frameworks of ours whose packages a lock file has, under names as tensorflow-cpu."""
    lock = _environments_folder() / environment / "uv.lock"
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    words = {word for name in re.findall(r'^name = "(.+)"', text, re.M) for word in name.split("-")}
    return {name for name in engine.names() if words.issuperset(engine.packages(name))}


@functools.cache
def environments() -> list[str]:
    """The folders in envs/."""
    return sorted(path.parent.name for path in _environments_folder().glob("*/pyproject.toml"))


def _environments_folder():
    return own_code.HOME / trainer_environments.ENVIRONMENTS
