"""The config: read it, check it, and expand it into the runs of a study.

- Config files are merged as Snakemake merges `--configfile` into `config.yaml`: mappings key by
  key, everything else, the matrix too, as a whole. If another workflow uses this one as a module,
  its config has this workflow's under the key `dlbench`.
- What a schema (dlbench/study/config_schema.py) cannot say is checked here and, for the blocks of
  the matrix, in dlbench/study/matrix.py; what a block excludes is kept with its reason.
- Secrets in commands are replaced by numbers for the command lines of rules, which Snakemake stores
  in its metadata and logs, and all users of the machine can see.
"""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import assignments, own_code, phrases, plugins
from dlbench.common.files import atomic_write
from dlbench.machine import redaction
from dlbench.study import (
    batch_searches,
    config_schema,
    goals,
    matrix,
    other_trainers,
    parameters,
    probes,
    trainer_environments,
    yaml_files,
)
from dlbench.study.config_schema import ConfigError, check_name
from dlbench.study.matrix import Excluded
from dlbench.study.runs import CONDITION, Run, labels, shuffled
from dlbench.trainer import copies

MERGED_CONFIGS = Path("results/logs/configs")
# The fields that change along with a field when its values are compared.
COMPANIONS = {
    "runtime": ("runtime_options",),
    "strategy": ("strategy_options", "launcher"),
    "framework": ("environment",),
}
# The fields in which a run must equal a published number, as far as the publication states them.
REFERENCE_MATCH = (
    *("framework", "model", "dataset", "precision", "mode", "strategy", "runtime"),
    *("nodes", "devices", "batch_per_device"),
)


def read(*paths: str | Path) -> dict[str, Any]:
    """Read and merge some config files; later ones take precedence.

    Raises ConfigError: a file is missing, is not YAML or has a key twice.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            content = yaml_files.read(path)
        except Error as error:
            raise ConfigError(str(error)) from error
        merged = merge(merged, _our_part(content or {}))
    return merged


def files(in_a_module: bool = False) -> list[str]:
    """The config files that are always read; later ones take precedence.

    dlbench's config.yaml has all keys. The config.yaml of the working directory, if that is another
    folder, and site.yaml, which describes a site's machine, are merged into it if they exist.
    `in_a_module`: whether another workflow uses this one as a module; then the config.yaml in the
    working directory is that of the other workflow.
    """
    ours = str(own_code.project_path("config.yaml"))
    around = [] if own_code.in_project_folder() or in_a_module else ["config.yaml"]
    return [ours, *(name for name in (*around, "site.yaml") if Path(name).exists())]


def laid_over(settings: dict[str, Any]) -> dict[str, Any]:
    """The config if another workflow uses this one as a module: its settings over `files`.

    Raises ConfigError: as `read`.
    """
    return merge(read(*files(in_a_module=True)), _our_part(settings))


def settings_of(named: list[str]) -> dict[str, Any]:
    """The content of `files` and of these config files, merged as in the Snakefile."""
    absent = next((file for file in named if not Path(file).exists()), None)
    if absent:
        raise ConfigError(
            f"--configfile {absent}: there is no such file. All words after --configfile are taken "
            "for files: name runs and targets before it"
        )
    return read(*files(), *named)


def merge(base: Any, over: Any) -> Any:
    """Merge one config into another: mappings key by key, everything else as a whole."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in over.items()}}


def _our_part(content):
    """The value of the key `dlbench` if a config has it; else the whole config."""
    return content.get("dlbench", content) if isinstance(content, dict) else content


def register_folders(config: dict[str, Any]) -> None:
    """Let names of models and datasets be those of the user's folders, too.

    Raises ConfigError: a folder is missing, a name is taken, or a file describes no dataset.
    """
    for kind, key in (("models", "model_folder"), ("datasets", "dataset_folder")):
        try:
            plugins.add_user_folder(kind, config[key])
        except Error as error:
            raise ConfigError(f"{key}: {error}{own_code.search_hint(config[key])}") from None
    try:
        plugins.set_user_names("datasets", "images", config["data"]["images"])
    except Error as error:
        raise ConfigError(f"data.images.{error}") from None
    for name in plugins.names("datasets") if config["dataset_folder"] else ():
        if plugins.is_builtin("datasets", name):
            continue
        try:
            stated = plugins.constants("datasets", name)
        except Error as error:
            raise ConfigError(f"dataset_folder: {error}") from None
        if stated.get("SYNTHETIC") is not False or "KIND" not in stated:
            raise ConfigError(
                f"dataset_folder: {plugins.path('datasets', name)}: expected SYNTHETIC = False and "
                "a KIND, as files of datasets have (docs/adding.md)"
            )


@dataclass(frozen=True)
class HiddenCommands:
    """Commands of a config without secrets.

    Attributes:
        site: {key of `site`: command as one text}, for the commands in the config.
        trainers: {trainer: command as a list}, with its placeholders.
        variables: environment variables with the secrets, for start_run.py.
    """

    site: dict[str, str]
    trainers: dict[str, list[str]]
    variables: dict[str, str]


def hide(config: dict[str, Any]) -> HiddenCommands:
    """Replace the secrets in the commands of a merged config."""
    secrets = redaction.Secrets()
    given = {key: config["site"].get(key) for key in ("power_meter", "power_limit_command")}
    return HiddenCommands(
        site={key: secrets.take_out(text) for key, text in given.items() if text},
        trainers={
            name: secrets.take_out_of_template(entry["command"])
            for name, entry in config["trainers"].items()
        },
        variables=secrets.variables,
    )


@dataclass(frozen=True)
class Study:
    """A config, checked and expanded.

    Attributes:
        runs: in the order of their execution, probes included.
        must_reach: {run id: the scores of its learning gate}.
        targets: {run id: the goals.Target that decides whether this repeat is needed}.
        where_installed: ids of the runs that are skipped if their environment is not installed.
        explained: {run id: {what a probe leaves out: the probe's id}}, see study/probes.py.
        searches: {search id: a search for the largest batch}.
        search_results: {search id: result} of the searches that have finished.
        with_found_batch: ids of the runs whose batch is the result of a search.
    """

    name: str
    runs: tuple[Run, ...]
    excluded: tuple[Excluded, ...]
    site: dict
    commands: HiddenCommands
    figures: tuple[str, ...]
    data: dict
    time_limit_s: float
    hang_limit_s: float
    wait_for_quiet_s: float
    others_share: float | None
    sample_every_s: float
    calibrate: bool
    checkpoint_every_min: float | None
    model_folder: str | None
    dataset_folder: str | None
    must_reach: dict
    targets: dict
    where_installed: frozenset[str]
    explained: dict[str, dict[str, str]]
    images: dict
    compare: tuple
    equivalence_margin: float
    sentinels: str | int | list[dict[str, Any]]
    sentinels_are_repeats: bool
    imports: tuple
    references: tuple
    searches: dict[str, batch_searches.Search]
    search_results: dict[str, batch_searches.SearchResult]
    with_found_batch: frozenset[str]

    @functools.cached_property
    def labels(self) -> dict[str, str]:
        """{run id: label}; no two labels are equal."""
        return labels(self.runs)

    @functools.cached_property
    def without_probes(self) -> tuple[Run, ...]:
        """The runs that enter the study's statistics: all but the probes."""
        return tuple(run for run in self.runs if not run.probe)

    def explained_by(self, probe: Run) -> list[Run]:
        """The runs whose steps a probe explains."""
        return self._explained_by.get(probe.id, [])

    @functools.cached_property
    def _explained_by(self):
        runs_by_probe: dict[str, list[Run]] = {}
        for run in self.runs:
            for probe_id in self.explained.get(run.id, {}).values():
                runs_by_probe.setdefault(probe_id, []).append(run)
        return runs_by_probe


def merged_config_path(text: str) -> Path:
    """The path of a merged config, which jobs read: it may be too long for a command line."""
    return MERGED_CONFIGS / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def write_merged_config(text: str) -> Path:
    """Write a merged config to its path unless the file exists, and return the path."""
    if not merged_config_path(text).exists():
        with atomic_write(merged_config_path(text)) as part:
            part.write_text(text, encoding="utf-8")
    return merged_config_path(text)


def read_merged_config(file: str | Path | None) -> dict[str, Any] | None:
    """Read the file that `write_merged_config` wrote; None if `file` is None."""
    return json.loads(Path(file).read_text(encoding="utf-8")) if file else None


def study_from_files(named: list[str]) -> Study:
    """The Study that the workflow computes with these config files, merged as in the Snakefile."""
    return study(settings_of(named))


def study(config: dict[str, Any]) -> Study:
    """Check a config (plain values, as from YAML) and expand it.

    Raises ConfigError: it has mistakes; the message has one line for each.
    """
    config = config_schema.check(config)
    for entry in config["references"]:
        entry["path"] = str(own_code.user_or_project_path(entry["path"]))
    register_folders(config)
    _register_trainers(config)
    runs: dict[str, tuple[Run, str]] = {}
    excluded: list[Excluded] = []
    must_reach, targets, where_installed, with_found_batch = {}, {}, set(), set()
    batches = batch_searches.Batches(config["images"])
    explained: dict[str, dict[str, Run]] = {}
    planned = 0
    for index, block in enumerate(config["matrix"]):
        where = f"matrix[{index}] ({block['name']})"
        combinations, left_out = matrix.expand(block, where)
        excluded += left_out
        most, target = goals.read_repeats(block.get("repeats", config["repeats"]))
        planned += len(combinations) * most
        if planned > config_schema.MAX_RUNS:
            raise ConfigError(
                f"{where}.repeats: {most} of {len(combinations)} combinations are, with the blocks "
                f"before, {planned} runs; expected at most {config_schema.MAX_RUNS}"
            )
        if target and target.min_repeats > most:
            raise ConfigError(f"{where}.repeats: min {target.min_repeats} is above max {most}")
        for where, combination in combinations:
            by_search = combination.get("batch_per_device") == batch_searches.MAX
            if by_search:
                search, result = batches.find(combination, where)
                if block.get("where_installed"):
                    where_installed.add(search.run.id)
                if "must_reach" in block:
                    matrix.check_gate(block["must_reach"], batches.least[-1], where)
                if not result.batch:
                    excluded.append(Excluded(block["name"], combination, result.reason))
                    continue
                combination = {**combination, "batch_per_device": result.batch}
            for repeat in range(1, most + 1):
                run = matrix.run_from_values(
                    {**combination, "repeat": repeat}, where, config["images"]
                )
                if run.copies_per_node > 1 and config["checkpoint_every_min"]:
                    raise ConfigError(f"{where}: {copies.NO_CHECKPOINTS}")
                if run.checkpoint_writer != "numpy" and not config["checkpoint_every_min"]:
                    raise ConfigError(
                        f"{where}: checkpoint_writer {run.checkpoint_writer} writes checkpoints, "
                        "and there are none: say checkpoint_every_min, as 10"
                    )
                if by_search:  # it may be a batch that is asked for by its number, too
                    with_found_batch.add(run.id)
                if run.id in runs and run.id not in with_found_batch:
                    raise ConfigError(
                        f"{where}: {run.label()} is already in {runs[run.id][1]}; "
                        "exclude it from one of the two"
                    )
                runs[run.id] = run, where
                if target and repeat > target.min_repeats:
                    targets[run.id] = target
                if block.get("where_installed"):
                    where_installed.add(run.id)
                if block.get("explain") and run.id not in targets:
                    explained[run.id] = _probes(run, combination, where, block["explain"], config)
                    if run.id in where_installed:
                        where_installed |= {probe.id for probe in explained[run.id].values()}
                if "must_reach" in block:
                    must_reach[run.id] = matrix.check_gate(block["must_reach"], run, where)
    if not runs and not batches.may_find:
        raise ConfigError(
            f"the matrix is empty: all {len(excluded)} combinations are excluded; "
            + (batches.none_fits or "check the exclude entries")
        )
    # With the runs of unfinished searches, so that mistakes are reported before searches start.
    meant = [run for run, _ in runs.values()] + batches.least
    for key in ("terms_accepted", "tfrecords"):
        for name in config["data"][key]:
            check_name("datasets", name, f"data.{key}")
    for name in config["figures"]:
        check_name("figures", name, "figures")
    _check_imports_and_references(config)
    _check_images(config["images"], meant)
    for index, entry in enumerate(config["compare"]):
        _check_compare(
            entry["field"],
            entry["base"],
            runs=meant,
            imports=config["imports"],
            where=f"compare[{index}]",
        )
    if isinstance(config["sentinels"], list):
        config["sentinels"] = [_of_runs(entry) for entry in config["sentinels"]]
        _check_sentinels(config["sentinels"], meant)
    everything = {run_id: run for run_id, (run, _) in runs.items()}
    everything |= {probe.id: probe for each in explained.values() for probe in each.values()}
    return Study(
        name=config["study"],
        runs=tuple(shuffled(everything.values(), config["seed"])),
        excluded=tuple(excluded),
        site=config["site"],
        commands=hide(config),
        figures=tuple(config["figures"]),
        data=config["data"],
        must_reach=must_reach,
        targets=targets,
        where_installed=_where_installed(where_installed, everything.values(), batches.least),
        explained={
            run_id: {left_out: probe.id for left_out, probe in probes_of_run.items()}
            for run_id, probes_of_run in explained.items()
            if probes_of_run  # a run without a model has none
        },
        compare=tuple(config["compare"]),
        imports=tuple(config["imports"]),
        calibrate=config.get("calibrate", True),  # absent from configs in older archives
        references=tuple({"match": REFERENCE_MATCH, **entry} for entry in config["references"]),
        searches=batches.searches,
        search_results=batches.results,
        with_found_batch=frozenset(with_found_batch),
        **{
            key: config[key]
            for key in (
                "time_limit_s",
                "hang_limit_s",
                "wait_for_quiet_s",
                "others_share",
                "sample_every_s",
                "checkpoint_every_min",
                "model_folder",
                "dataset_folder",
                "images",
                "equivalence_margin",
                "sentinels",
                "sentinels_are_repeats",
            )
        },
    )


def _where_installed(run_ids, runs, tries):
    """Ids of the runs that are skipped if their environment is not installed.

    None, if this machine has no Python for any of the other runs: they would be skipped too, and
    nothing would be trained.
    """
    others = [run for run in (*runs, *tries) if run.id not in run_ids]
    if others and all(map(trainer_environments.missing_python, others)):
        return frozenset()
    return frozenset(run_ids)


def _probes(run, combination, where, explain, config):
    """The probes of a run, as its block's `explain` says."""
    run_of = functools.partial(matrix.run_from_values, where=where, images=config["images"])
    if run.is_external:
        return probes.of_program(run, combination, where, explain, run_of)
    if explain is not True:
        raise ConfigError(f"{where}.explain: expected true; parameters are of another program")
    return probes.of(run, copies=not config["checkpoint_every_min"])


def _check_imports_and_references(config):
    """Check that the paths of imports and references exist and the names of imports differ."""
    for key, kind, exists in (
        ("imports", "file or folder", Path.exists),
        ("references", "file", Path.is_file),
    ):
        for index, entry in enumerate(config[key]):
            if not exists(Path(entry["path"])):
                looked = own_code.search_hint(entry["path"])
                raise ConfigError(
                    f"{key}[{index}].path: there is no {kind} {entry['path']}{looked}"
                )
    names = [entry["name"] for entry in config["imports"]]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"imports: expected names that differ, found {twice} twice")


def _check_images(images, runs):
    """Check that no name under `images` is a misspelling of an image that runs use."""
    contained = {
        run.environment for run in runs if plugins.constants("runtimes", run.runtime)["CONTAINED"]
    }
    spare = sorted(contained - images.keys())
    for name in images.keys() - contained - set(trainer_environments.environments()):
        if hint := phrases.did_you_mean(name, spare):
            raise ConfigError(f"images: no run takes {name!r}{hint}; they take: {', '.join(spare)}")


def _check_compare(field, base, runs, imports, where):
    """Check that a field can be compared and that its base is one condition of some runs."""
    own = {key for run in runs for key in parameters.column_values(run.trainer_parameters)}
    if field not in CONDITION and field not in own:
        known = [*CONDITION, *sorted(own)]
        raise ConfigError(
            f"{where}.field: a run has no field {field!r}{phrases.did_you_mean(field, known)}; "
            f"there are: {', '.join(known)}"
        )
    if field not in own:
        _check_kind(field, base, where)
    values = sorted({run.value(field) for run in runs}, key=str)
    if base not in values and not imports:  # imported logs are not read yet
        raise ConfigError(
            f"{where}.base: no run has the {field} {base!r}{phrases.did_you_mean(base, values)}; "
            f"there are: {', '.join(map(repr, values))}"
        )
    for companion in COMPANIONS.get(field, ()):
        of_base = [run for run in runs if getattr(run, field) == base]
        companions = sorted({getattr(run, companion) for run in of_base})
        if len(companions) > 1:
            raise ConfigError(
                f"{where}.base: {field} {base} is no single condition, since its runs have the "
                f"{companion} {', '.join(map(repr, companions))}; compare {companion} instead, or "
                "choose another base"
            )


def _check_sentinels(entries, runs):
    """Check that each entry of `sentinels` matches some runs."""
    index = matrix.unmatched(entries, runs)
    if index is not None:
        shown = "; ".join(f"{key} {value}" for key, value in entries[index].items())
        raise ConfigError(f"sentinels[{index}]: no run of this study has {shown}")


def _of_runs(entry):
    """An entry that selects runs, with the keys and values that runs have."""
    entry = parameters.flat(entry)
    for key in entry.keys() & {"variables", "launcher_options"}:
        entry[key] = [assignments.text(each) for each in matrix.as_list(entry[key])]
    return entry


def _check_kind(field, base, where):
    """Check that a base is of the kind that a field has."""
    kind = config_schema.schema()["$defs"]["axes"]["properties"][field]["type"][0]
    kind = "string" if kind == "object" else kind  # options are compared as text
    types = {"integer": int, "number": int | float, "string": str, "boolean": bool}
    # 1 is true to Python, and must not be to a config.
    if not isinstance(base, types[kind]) or isinstance(base, bool) != (kind == "boolean"):
        raise ConfigError(
            f"{where}.base: expected {config_schema.TYPES[kind]}, as every {field} is, found "
            f"{base!r}{yaml_files.hint(base, kind)}"
        )


def _register_trainers(config):
    names = [
        name
        for block in config["matrix"]
        for part in (block, *block.get("include", ()))
        for name in part.get("parameters", {})
    ]
    try:
        other_trainers.register(config["trainers"], names)
    except Error as error:
        raise ConfigError(str(error)) from None
