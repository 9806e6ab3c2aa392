"""The config: read it, check it, and expand it into the runs of a study.

- Files are merged as Snakemake merges `--configfile` over `config.yaml`:
  mappings key by key, everything else (the matrix too) as a whole.
- What a schema (dlbench/config_schema.py) cannot say (names of files, impossible values
  together) is checked here. Every error names the key, the value found, what is allowed
  and the nearest valid name.
- `matrix` blocks become runs; what a block excludes is kept with its reason.
"""

import functools
import itertools
from dataclasses import dataclass
from pathlib import Path

import yaml

from dlbench import (
    Error,
    config_schema,
    copies,
    external,
    options,
    parsing,
    plugins,
    records,
    repeating,
)
from dlbench.config_schema import ConfigError
from dlbench.runs import DEFAULTS, FIELDS, PLUGIN_FOLDERS, Run, shuffled

ENVIRONMENTS = Path(__file__).parents[2] / "envs"
# What goes with a field when its values are compared.
COMPANIONS = {"runtime": ("runtime_options",), "strategy": ("strategy_options", "launcher")}

# In what a run agrees with a published number, where that states it, to be compared with it.
REFERENCE_MATCH = (
    *("framework", "model", "dataset", "precision", "mode", "strategy", "runtime"),
    *("nodes", "devices", "batch_per_device"),
)


@dataclass(frozen=True)
class Excluded:
    """A combination that a block leaves out, and why."""

    block: str
    values: dict
    reason: str


@dataclass(frozen=True)
class Study:
    """A config, checked and expanded: `runs` in the order of their execution.

    `must_reach` maps the ids of runs with a learning gate to the scores they must reach, `targets`
    those of repeats that may not be needed to the repeating.Target that decides.
    """

    name: str
    runs: tuple[Run, ...]
    excluded: tuple[Excluded, ...]
    site: dict
    figures: tuple[str, ...]
    data: dict
    time_limit_s: float
    hang_limit_s: float
    sample_every_s: float
    checkpoint_every_min: float | None
    model_folder: str | None
    must_reach: dict
    targets: dict
    images: dict
    compare: tuple
    equivalence_margin: float
    imports: tuple
    references: tuple


def read(*paths):
    """The merged content of some config files, the last one winning.

    Raises:
        ConfigError: a file is missing or is not YAML.
    """
    merged = {}
    for path in paths:
        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
        merged = _merge(merged, content or {})
    return merged


def study_of(files):
    """The Study that the workflow computes with these config files, merged as in the Snakefile."""
    return study(settings_of(files))


def settings_of(files):
    """The content of config.yaml with these config files over it, merged as in the Snakefile."""
    site = ["site.yaml"] if Path("site.yaml").exists() else []
    return read("config.yaml", *site, *files)


def study(config):
    """Check a config (plain values, as from YAML) and expand it.

    Raises:
        ConfigError: with every mistake that was found, one a line.
    """
    config_schema.check(config)
    _use(config)
    runs, excluded, must_reach, targets = {}, [], {}, {}
    for index, block in enumerate(config["matrix"]):
        where = f"matrix[{index}] ({block['name']})"
        combinations, left_out = _expand(block, where)
        excluded += left_out
        for combination in combinations:
            most, target = repeating.wanted(block.get("repeats", config["repeats"]))
            if target and target.fewest > most:
                raise ConfigError(f"{where}.repeats: min {target.fewest} is above max {most}")
            for repeat in range(1, most + 1):
                run = _run({**combination, "repeat": repeat}, where, config["images"])
                if run.copies_per_node > 1 and config["checkpoint_every_min"]:
                    raise ConfigError(f"{where}: {copies.NO_CHECKPOINTS}")
                if run.id in runs:
                    raise ConfigError(
                        f"{where}: {run.label()} is already in {runs[run.id][1]}; "
                        "exclude it from one of the two"
                    )
                runs[run.id] = run, where
                if target and repeat > target.fewest:
                    targets[run.id] = target
                if "must_reach" in block:
                    must_reach[run.id] = _gate(block["must_reach"], run, where)
    if not runs:
        raise ConfigError(
            f"the matrix is empty: all {len(excluded)} combinations are excluded; "
            "check the exclude entries"
        )
    for key in ("terms_accepted", "tfrecords"):
        for name in config["data"][key]:
            _named("datasets", name, f"data.{key}")
    for name in config["figures"]:
        _named("figures", name, "figures")
    _check_others(config)
    for index, entry in enumerate(config["compare"]):
        _check_compare(
            **entry, runs=[run for run, _ in runs.values()], imports=config["imports"],
            where=f"compare[{index}]",
        )  # fmt: skip
    return Study(
        name=config["study"],
        runs=tuple(shuffled([run for run, _ in runs.values()], config["seed"])),
        excluded=tuple(excluded),
        site=config["site"],
        figures=tuple(config["figures"]),
        data=config["data"],
        must_reach=must_reach,
        targets=targets,
        compare=tuple(config["compare"]),
        imports=tuple(config["imports"]),
        references=tuple({"match": REFERENCE_MATCH, **entry} for entry in config["references"]),
        **{
            key: config[key]
            for key in (
                "time_limit_s",
                "hang_limit_s",
                "sample_every_s",
                "checkpoint_every_min",
                "model_folder",
                "images",
                "equivalence_margin",
            )
        },
    )


def _merge(base, over):
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{k: _merge(base[k], v) if k in base else v for k, v in over.items()}}


def _expand(block, where):
    """The combinations of one block, and those it excludes."""
    axes = _axes(block, where)
    combinations = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    kept, excluded = [], []
    rules = block.get("exclude", [])
    for index, rule in enumerate(rules):
        if not any(_matches(rule, combination) for combination in combinations):
            raise ConfigError(
                f"{where}.exclude[{index}]: no combination of this block matches "
                f"{ {k: v for k, v in rule.items() if k != 'reason'} }; is a value misspelt?"
            )
    for combination in combinations:
        rule = next((rule for rule in rules if _matches(rule, combination)), None)
        if rule is None:
            kept.append(combination)
        else:
            reason = rule.get("reason", "excluded in the config")
            excluded.append(Excluded(block["name"], combination, reason))
    single = {key: values[0] for key, values in axes.items() if len(values) == 1}
    for index, entry in enumerate(block.get("include", [])):
        batches = {"batch_per_device", "global_batch"}
        left_out = batches if batches & entry.keys() else set()
        inherited = {key: value for key, value in single.items() if key not in left_out}
        lists = _axes({**inherited, **entry}, f"{where}.include[{index}]")
        kept += [
            dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())
        ]
    return kept, excluded


def _axes(block, where):
    """The fields of a run that a block names, each as a list, its names checked."""
    axes = {
        key: value if isinstance(value, list) else [value]
        for key, value in block.items()
        if key in FIELDS or key == "global_batch"
    }
    ours = external.OWN in axes.get("trainer", [external.OWN])
    for key, folder in PLUGIN_FOLDERS.items():
        for name in axes.get(key, []) if ours or key not in external.WORDS else ():
            _named(folder, name, f"{where}.{key}")
    return axes


def _matches(rule, combination):
    return all(
        combination.get(key, DEFAULTS.get(key)) in (value if isinstance(value, list) else [value])
        for key, value in rule.items()
        if key != "reason"
    )


def _run(values, where, images):
    """The run of one combination, or a ConfigError that says why it cannot be."""
    values = _with_batch_per_device(values, where)
    missing = [key for key in ("model", "dataset") if key not in values]
    if missing:
        raise ConfigError(f"{where}: no {', '.join(missing)} given")
    if ("steps" in values) == ("epochs" in values):
        found = "both" if "steps" in values else "neither"
        raise ConfigError(f"{where}: expected either steps or epochs, found {found}")
    strategy = plugins.load("strategies", values.get("strategy", DEFAULTS["strategy"])).Strategy
    runtime = values.get("runtime", DEFAULTS["runtime"])
    for kind, owner, known in (
        ("strategy", values.get("strategy", DEFAULTS["strategy"]), strategy.OPTIONS),
        ("runtime", runtime, plugins.load("runtimes", runtime).OPTIONS),
    ):
        key = f"{kind}_options"
        if key in values:
            try:
                values = {**values, key: options.text(kind, owner, known, values[key])}
            except Error as error:
                raise ConfigError(f"{where}.{key}: {error}") from None
    run = Run(**{"launcher": strategy.launcher, **values})
    if external.is_external(run):
        _check_trainer(run, where)
    else:
        _check_task(run, where)
    if run.epochs and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} takes steps, not epochs: it learns nothing")
    if run.evaluate == "yes" and run.mode != "train":
        raise ConfigError(f"{where}: mode {run.mode} learns nothing that could be evaluated")
    if not records.has_environment(run) and runtime == DEFAULTS["runtime"]:
        return run
    there, found = _environments(), f"no folder envs/{run.environment}"
    if plugins.load("runtimes", runtime).CONTAINED:
        there, found = sorted({*there, *images}), f"{found} and no such image under images"
    if run.environment not in there:
        raise ConfigError(
            f"{where}.environment: {found}"
            f"{plugins.nearest(run.environment, there)}; there are: {', '.join(there)}"
        )
    return run


def _with_batch_per_device(values, where):
    """The values of a combination, with global_batch dealt out over its devices."""
    if ("global_batch" in values) == ("batch_per_device" in values):
        found = "both" if "global_batch" in values else "neither"
        raise ConfigError(
            f"{where}: expected either batch_per_device or global_batch, found {found}"
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


def _gate(must_reach, run, where):
    """The scores a run must reach, seen to be scores that it will have."""
    scores = parsing.SCORES
    if not external.is_external(run):
        task = plugins.constants("models", run.model)["TASK"]
        scores = plugins.constants("tasks", task)["SCORES"]
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
                f"{where}.must_reach: {name} needs an evaluation; give epochs, or evaluate: yes"
            )
    return must_reach


def _check_others(config):
    """See that what others measured is there."""
    for key in ("imports", "references"):
        for index, entry in enumerate(config[key]):
            if not Path(entry["path"]).exists():
                raise ConfigError(f"{key}[{index}].path: there is no {entry['path']}")
    names = [entry["name"] for entry in config["imports"]]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"imports: expected names that differ, found {twice} twice")


def _check_compare(field, base, runs, imports, where):
    """See that a field can be compared and that its base is one condition of some runs."""
    known = [name for name in FIELDS if name != "repeat"]
    if field not in known:
        raise ConfigError(
            f"{where}.field: a run has no field {field!r}{plugins.nearest(field, known)}; "
            f"there are: {', '.join(known)}"
        )
    there = sorted({getattr(run, field) for run in runs}, key=str)
    # 1 is true to Python, and must not be to a config.
    own = any((type(value) is bool, value) == (type(base) is bool, base) for value in there)
    if not own and not imports:  # what logs have is not known yet
        raise ConfigError(
            f"{where}.base: no run has the {field} {base!r}{plugins.nearest(base, there)}; "
            f"there are: {', '.join(map(repr, there))}"
        )
    for companion in COMPANIONS.get(field, ()):
        found = sorted({getattr(run, companion) for run in runs if getattr(run, field) == base})
        if len(found) > 1:
            raise ConfigError(
                f"{where}.base: {field} {base} is no single condition, since its runs have the "
                f"{companion} {', '.join(map(repr, found))}; compare {companion} instead, or "
                "choose another base"
            )


def _use(config):
    """Make known what the user has of their own: models and trainers."""
    try:
        plugins.use_folder("models", config["model_folder"])
    except Error as error:
        raise ConfigError(f"model_folder: {error}") from None
    try:
        external.use(config["trainers"])
    except Error as error:
        raise ConfigError(str(error)) from None


def _check_trainer(run, where):
    """See that there is the other program that is to train a run."""
    try:
        external.trainer(run)
    except Error as error:
        raise ConfigError(f"{where}.trainer: {error}") from None
    if external.needs(run, "data"):
        _named("datasets", run.dataset, f"{where}.dataset")


def _check_task(run, where):
    """See that a model can learn from a dataset."""
    if run.framework != DEFAULTS["framework"]:
        raise ConfigError(
            f"{where}.framework: {run.framework} needs a trainer of its own (trainers); "
            f"dlbench's is of {DEFAULTS['framework']}"
        )
    task = plugins.constants("models", run.model).get("TASK")
    _named("tasks", task, f"{where}: TASK of models/{run.model}.py")
    dataset = plugins.load("datasets", run.dataset)
    kind = plugins.constants("tasks", task)["KIND"]
    if not dataset.SYNTHETIC and kind != dataset.KIND:
        raise ConfigError(
            f"{where}: model {run.model} learns {task} and needs data of the kind {kind}; "
            f"{run.dataset} is of the kind {dataset.KIND}"
        )
    if dataset.SYNTHETIC and run.epochs:
        raise ConfigError(f"{where}: dataset {run.dataset} has no epochs; give steps")
    if dataset.SYNTHETIC and run.evaluate == "yes":
        raise ConfigError(f"{where}: dataset {run.dataset} has no held-out items to evaluate")


@functools.cache
def _environments():
    return sorted(path.parent.name for path in ENVIRONMENTS.glob("*/pyproject.toml"))


def _named(folder, name, where):
    try:
        plugins.path(folder, name)
    except plugins.UnknownName as error:
        raise ConfigError(f"{where}: {error}") from None
