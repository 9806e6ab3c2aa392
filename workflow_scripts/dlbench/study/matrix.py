"""The matrix of a config: expand its blocks into combinations, and those into runs.

Here are the checks of one run that a schema cannot express: names of files, and values that exclude
each other. Every error names the block, the key, the value, what is allowed and the nearest valid
name.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from dlbench import Error
from dlbench.common import networks, options, phrases, plugins
from dlbench.common.files import canonical_json
from dlbench.log import event_log
from dlbench.study import (
    config_schema,
    goals,
    launching,
    other_trainers,
    parameters,
    trainer_environments,
)
from dlbench.study.config_schema import ConfigError, check_name
from dlbench.study.runs import DEFAULTS, FIELDS, PLUGIN_FOLDERS, Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs
from dlbench.trainer.tasks import TASKS

# Groups of fields of which a combination has one.
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

    Returns a list of (place in the config, mapping), and one of Excluded. Raises ConfigError: a
    name is unknown, or an `exclude` entry matches nothing.
    """
    axes = _axes(block, where)
    combinations = _products(axes, where)
    rules = block.get("exclude", [])
    rules = [parameters.flat(rule) for rule in rules]
    matching = lookup([{k: v for k, v in rule.items() if k != "reason"} for rule in rules])
    included, excluded, used = [], [], 0
    for combination in combinations:
        known = parameters.resolved(combination) if rules else combination
        matched = matching(functools.partial(_value_of, known))
        used |= matched
        if not matched:
            included.append((where, combination))
        else:
            rule = rules[_lowest_bit(matched)]
            reason = rule.get("reason", "excluded in the config")
            excluded.append(Excluded(block["name"], known, reason))
    if (unused := _lowest_bit(~used)) < len(rules):
        _raise_unmatched(rules[unused], combinations, f"{where}.exclude[{unused}]")
    single = {key: values[0] for key, values in axes.items() if len(values) == 1}
    for index, entry in enumerate(block.get("include", [])):
        place = f"{where}.include[{index}]"
        # A field of the entry replaces that of the block, and its alternatives too.
        replaced = [key for group in ALTERNATIVES if group & entry.keys() for key in group]
        inherited = {key: value for key, value in single.items() if key not in replaced}
        added = _products(_axes({**inherited, **parameters.flat(entry)}, place), place)
        included += [(place, combination) for combination in added]
    return included, excluded


def _products(axes, where):
    config_schema.check_product({key: len(values) for key, values in axes.items()}, where)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def lookup(entries: Sequence[Mapping[str, Any]]) -> Callable[[Callable[[str], Any]], int]:
    """Index some entries, so that those that match a run are found without trying each.

    `entries`: each gives fields one value or several. An entry without fields matches nothing.

    Returns:
        A function. Its argument is a function from the name of a field to its value in a run; it
        returns an integer whose bit n is set if entry n matches.
    """
    everything = sum(1 << place for place, entry in enumerate(entries) if entry)
    by_value: dict[str, dict[Any, int]] = {}
    unnamed: dict[str, int] = {}  # {field: entries that do not name it}
    for place, entry in enumerate(entries):
        for key, values in entry.items():
            unnamed[key] = unnamed.get(key, everything) & ~(1 << place)
            places = by_value.setdefault(key, {})
            for value in map(_hashable, as_list(values)):
                places[value] = places.get(value, 0) | 1 << place

    def matching(value_of):
        matches = everything
        for key, places in by_value.items():
            matches &= unnamed[key] | places.get(_hashable(value_of(key)), 0)
        return matches

    return matching


def _hashable(value):
    return canonical_json(value) if isinstance(value, dict | list) else value


def _lowest_bit(number):
    return (number & -number).bit_length() - 1


def unmatched(entries: Sequence[Mapping[str, Any]], runs: Iterable[Run]) -> int | None:
    """The index of the first entry that matches none of the runs; None if all match some."""
    matching, used = lookup(entries), 0
    for run in runs:
        used |= matching(run.value)
    place = _lowest_bit(~used)
    return place if place < len(entries) else None


def _raise_unmatched(rule, combinations, where):
    """Raise an error that says why an `exclude` entry excludes nothing."""
    fields = {key: as_list(value) for key, value in rule.items() if key != "reason"}
    if not fields:
        raise ConfigError(f"{where}: expected fields of a run beside the reason, found none")
    for key, values in fields.items():
        existing = list(dict.fromkeys(_value_of(each, key) for each in combinations))
        if not set(values) & set(existing):
            raise ConfigError(
                f"{where}.{key}: no combination of this block has {_joined(values)}"
                f"{phrases.did_you_mean(values[0], existing)}; there are: {_joined(existing)}"
            )
    raise ConfigError(
        f"{where}: no combination of this block has all of this together: "
        + "; ".join(f"{key} {_joined(values)}" for key, values in fields.items())
    )


def _joined(values):
    return ", ".join(map(str, values))


def _axes(block, where):
    """The fields of a run that a block has, each as a list; names of add-ons are checked."""
    axes = {
        key: as_list(value)
        for key, value in parameters.flat(block).items()
        if key in FIELDS or key == "global_batch" or key.startswith(parameters.PREFIX)
    }
    ours = other_trainers.BUILT_IN in axes.get("trainer", [other_trainers.BUILT_IN])
    for key, folder in PLUGIN_FOLDERS.items():
        names = axes.get(key, []) if ours or key not in other_trainers.FREE_NAMES else []
        frameworks = axes.get("framework", [engine.DEFAULT])
        kinds = [engine.plugin_kind(framework, folder) for framework in frameworks]
        for kind, name in itertools.product(kinds, names):
            # If some of the frameworks have a strategy, the runs of the others are skipped.
            if key != "strategy" or not any(name in plugins.names(other) for other in kinds):
                check_name(kind, name, f"{where}.{key}")
    if "node" in axes:
        alone = axes.get("nodes", [1]) == [1]
        axes["node"] = _named_nodes(axes["node"], alone, f"{where}.node")
    return axes


def _named_nodes(values, alone, where):
    """The names of nodes in lists as n[1-3], or these lists, if runs are not of one node alone."""
    try:
        listed = [networks.expand_hosts(value) for value in values]
        groups = [[name] for names in listed for name in names] if alone else listed
        # One text for one group: n[1,2] and n[1-2] are the same.
        names = [networks.compact_hosts(group) for group in groups]
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
    try:
        values, in_formulas = parameters.settle(values, other_trainers.RESERVED)
    except Error as error:
        raise ConfigError(f"{where}.{error}") from None
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
    launcher = values.get("launcher", strategy.launcher)
    for key, text_of in (
        ("variables", parameters.variables_text),
        ("launcher_options", functools.partial(parameters.options_text, launcher)),
    ):
        if key in values:
            try:
                values = {**values, key: text_of(values[key])}
            except Error as error:
                raise ConfigError(f"{where}.{key}: {error}") from None
    defaults = {"launcher": strategy.launcher, "environment": engine.environment(framework)}
    run = Run(**{**defaults, **values})
    if run.is_external:
        _check_trainer(run, where, in_formulas)
    else:
        if in_formulas or run.trainer_parameters:
            raise ConfigError(
                f"{where}: parameters and formulas are for blocks with a trainer, another program; "
                "dlbench's own has the fields of a run"
            )
        _check_task(run, where)
        if reason := launching.describe_misfit(run):
            raise ConfigError(f"{where}.launcher: {reason}")
    if run.node and (named := len(networks.expand_hosts(run.node))) != run.nodes:
        count = "one node" if named == 1 else f"{named} nodes"
        raise ConfigError(
            f"{where}.node: {run.node} is {count}, and the run has {run.nodes}: name as many as "
            "nodes says, or leave out one of node and nodes"
        )
    if run.epochs and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} takes steps, not epochs: it learns nothing")
    if run.evaluate == "yes" and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} learns nothing that could be evaluated")
    if not trainer_environments.has_environment(run) and runtime == DEFAULTS["runtime"]:
        return run
    if "environment" not in values:
        run = _with_environment(run, images)
    known, reason = trainer_environments.environments(), f"no folder envs/{run.environment}"
    if plugins.constants("runtimes", runtime)["CONTAINED"]:
        known, reason = sorted({*known, *images}), f"{reason} and no such image under images"
    if run.environment not in known:
        raise ConfigError(
            f"{where}.environment: {reason}"
            f"{phrases.did_you_mean(run.environment, known)}; there are: {', '.join(known)}"
        )
    if not run.is_external and (runtime == DEFAULTS["runtime"] or run.environment not in images):
        _check_environment(run, where)
    return run


def _with_environment(run, images):
    """A run whose config names no environment, with one for which this machine has a Python.

    The run is unchanged if no Python of this machine trains it: if another program does, if it is
    started elsewhere, or in an image that the config describes. An image that is built from an
    environment follows the choice.
    """
    elsewhere = launching.starts_elsewhere(run.launcher)
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
    if must_reach and run.mode == inputs.INPUT_ONLY:
        raise ConfigError(f"{where}.must_reach: mode input has no model, so it learns nothing")
    scores: tuple[str, ...] = event_log.SCORES
    if not run.is_external:
        task = plugins.constants(engine.plugin_kind(run.framework, "models"), run.model)["TASK"]
        scores = TASKS[task].SCORES
    for name in must_reach:
        if name == goals.METRICS and not run.is_external:
            raise ConfigError(
                f"{where}.must_reach.metrics: dlbench's trainer names no metrics; other programs do"
            )
        if name in ("final_loss", goals.METRICS):
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


def _check_trainer(run, where, in_formulas):
    """Check that the config has the other program that is to train a run, with its parameters."""
    try:
        other_trainers.trainer(run)
        other_trainers.check_parameters(run, in_formulas)
        for key in other_trainers.MOST:
            other_trainers.stated(run, key)
    except Error as error:
        raise ConfigError(f"{where}.trainer: {error}") from None
    if other_trainers.needs(run, "data"):
        check_name("datasets", run.dataset, f"{where}.dataset")


def _check_task(run, where):
    """Check that a model can learn from a dataset."""
    if run.framework not in engine.names():
        raise ConfigError(
            f"{where}.framework: {run.framework} needs a trainer of its own (trainers)"
            f"{phrases.did_you_mean(run.framework, engine.names())}; dlbench's is of "
            f"{', '.join(engine.names())}"
        )
    task = plugins.constants(engine.plugin_kind(run.framework, "models"), run.model).get("TASK")
    if task not in TASKS:
        raise ConfigError(
            f"{where}: TASK of model {run.model}: no task {task}"
            f"{phrases.did_you_mean(task, TASKS)}; there are: {', '.join(TASKS)}"
        )
    dataset = plugins.constants("datasets", run.dataset)
    kind = TASKS[task].KIND
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
    """Check that a folder in envs/ is not the environment of another framework.

    An environment that locks no known framework passes: it may have a build under another name.
    """
    if run.environment == engine.environment(run.framework):
        return
    locked = trainer_environments.frameworks_in(run.environment)
    if locked and run.framework not in locked:
        fitting = [
            name
            for name in trainer_environments.environments()
            if run.framework in trainer_environments.frameworks_in(name)
        ]
        raise ConfigError(
            f"{where}.environment: envs/{run.environment} is an environment of "
            f"{' and '.join(sorted(locked))}, and the run is one of {run.framework}"
            f"{phrases.did_you_mean(run.environment, fitting)}; environments with {run.framework}: "
            f"{', '.join(fitting)}. Frameworks whose environments differ need a block each"
        )
