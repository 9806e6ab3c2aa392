"""Make a Plan from a config: the study's runs, their states, and what must be made again.

Names of metrics are checked once the runs are known. Patterns of logs name theirs; what
dlbench_log.py, an importer or `auto` finds is known only once a program has run, and a misspelt
name is then reported where the metric is used.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.common.phrases import did_you_mean
from dlbench.data import fetch_dataset, stores
from dlbench.images import trainer_image
from dlbench.log import event_fields
from dlbench.machine import redaction
from dlbench.plan import plan, sentinels, skipping
from dlbench.plan.sentinels import Chosen
from dlbench.records import costs, judgement, run_record, sessions
from dlbench.records.judgement import State
from dlbench.starting import start_command
from dlbench.study import (
    batch_searches,
    config,
    config_schema,
    goals,
    launching,
    log_patterns,
    other_trainers,
    trainer_environments,
)
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.trainer.reading import manifest

# The least that any start writes: its session, its lock, the tables of a small study.
MIN_FREE_BYTES, MIN_FREE_FILES = 1 << 20, 50
_plan_by_settings: dict[str, plan.Plan] = {}


def no_sentinels(study: Study, to_train: list[Run], took_s: dict[str, float]) -> Chosen:
    """The choice of sentinels for programs that train nothing: none."""
    return Chosen()


def check_folders(writes: bool) -> None:
    """Check that Snakemake and its jobs can write into their folders.

    `writes`: whether results will be written; a dry run only writes its lock. Raises Error: the
    results are no folder, a folder is not writable for this user, or its disk is full.
    """
    results = run_record.RESULTS
    leads = f" (a link to {os.readlink(results)})" if results.is_symlink() else ""
    if os.path.lexists(results) and not os.path.isdir(results):
        raise Error(
            f"{results.absolute()}{leads} is no folder that this user can reach: make it one, or a "
            "link to a folder of yours (ln -s /scratch/me/mine results); nothing was started"
        )
    places = [Path(".snakemake"), *([results] if writes else [])]
    for place in (place if place.exists() else Path() for place in places):
        if not os.access(place, os.W_OK | os.X_OK):
            raise Error(
                f"{place.absolute()}{leads if place == results else ''} is not writable for this "
                "user, so that no workflow can be started here; dlbench status, doctor, export and "
                "compare can read it, and a copy of the folder with its results can continue the "
                "campaign"
            )
        disk = os.statvfs(place)
        free_bytes = disk.f_bavail * disk.f_frsize
        few_files = disk.f_files and disk.f_favail < MIN_FREE_FILES  # some disks count none
        if few_files or free_bytes < MIN_FREE_BYTES:
            left = (
                f"{disk.f_favail} more files can be made (df -i)"
                if few_files
                else f"{free_bytes} bytes are free"
            )
            raise Error(
                f"the disk of {place.absolute()} is full: {left}; nothing was started. Make room, "
                "then start again: what is done stays"
            )


def plan_of_start(settings: dict[str, Any], is_start: bool) -> plan.Plan:
    """The Plan of a start of Snakemake or of one of its jobs, made once in a process.

    `is_start`: whether a user started this process; False in jobs.
    """
    config_schema.check_size(settings)  # before `repr` expands its aliases
    key = repr(settings)
    if key not in _plan_by_settings:
        choose = sentinels.choose if is_start else sentinels.sentinels_of_session
        new_plan = make_plan(settings, choose, in_job=not is_start)
        _check_secrets(new_plan)
        session = sessions.new() if is_start else None
        _plan_by_settings[key] = dataclasses.replace(new_plan, new_session=session)
    return _plan_by_settings[key]


def plan_in_use() -> plan.Plan | None:
    """The Plan that this process has made last; None if it has made none."""
    return next(reversed(_plan_by_settings.values()), None)


def plan_found_batches(settings: dict[str, Any], before: plan.Plan) -> None:
    """Add the runs whose batches were found to the Plan of this start, and keep its session.

    `before`: the Plan with the searches; it is changed in place.
    """
    after = make_plan(settings, sentinels.choose)
    _check_secrets(after)
    after = dataclasses.replace(after, new_session=before.new_session)
    # In place, since the Snakefile holds this object.
    vars(before).clear()
    vars(before).update(vars(after))


def _check_secrets(new_plan):
    """Check that the commands of other trainers have their secrets."""
    for run in new_plan.to_train:
        if run.is_external:
            other_trainers.check_secrets(run)


def make_plan(
    settings: dict[str, Any],
    choose_sentinels: Callable[[Study, list[Run], dict[str, float]], Chosen] = no_sentinels,
    in_job: bool = False,
) -> plan.Plan:
    """Expand a merged config, read the records, and decide what is to be done.

    Raises Error: the config has mistakes; the message has all of them.

    Args:
        choose_sentinels: chooses the session's sentinels: sentinels.choose for a start,
            sentinels.sentinels_of_session for its jobs.
        in_job: whether this is a job of a start.
    """
    study = config.study(settings)
    check_log_patterns(settings.get("trainers") or {})
    check_metrics(study)
    devices = skipping.devices(study.site)
    runs = {run.id: run for run in study.runs}
    skipped = {
        run.id: reason
        for run in study.runs
        if (reason := skipping.skip_reason(run, devices, study))
    }
    searches = searches_to_do(study, devices)
    _check_data_folders(study)
    _check_references(study)
    adopted = stores.adopted(study, as_converted=in_job)
    basis = judgement.Basis(stores.recipes(adopted), study.images, study.time_limit_s)
    pending, took_s, done = {}, {}, False
    for run in study.runs:
        judgement.training_code(run)  # reports a syntax error in a file before any work is done
        state, reason, record = judgement.state_and_record(run, run.id not in skipped, basis)
        if state is not State.CURRENT:
            pending[run.id] = state, reason
            continue
        done = done or bool(record and record["status"] != "skipped")
        if record and run.id not in skipped and record["status"] in event_fields.SUCCEEDED:
            took_s[run.id] = costs.recorded_s(record)
    if not done:
        _check_remains(study, skipped, searches)
    to_train = [runs[run_id] for run_id in pending if run_id not in skipped]
    tried = [search.run for search, why_not in searches.values() if not why_not]
    for run in [*to_train, *tried]:
        if start_command.contained(run):
            trainer_image.check_source(run.environment, study)
    read = {run.dataset for run in [*to_train, *tried] if judgement.has_data(run)}
    _check_terms_accepted(read - {*adopted}, study)
    not_trained = [run for run in to_train if pending[run.id][0] is not State.UNREAD]
    # If batches must be found first, the plan that follows their search chooses the sentinels.
    repeated = Chosen() if searches else choose_sentinels(study, not_trained, took_s)
    if repeated.runs:
        runs, pending = _with_sentinels(repeated.runs, study, to_train, pending, settings["seed"])
    return plan.Plan(
        study=study,
        runs=runs,
        skipped=skipped,
        pending=pending,
        device_kind=devices.kind,
        config_json=json.dumps(redaction.redact_settings(settings), sort_keys=True),
        remade=frozenset(
            {
                *_to_be_remade(runs, pending, study.images),
                *_missing_environments(tried),
                *(str(search.output) for search, _ in searches.values() if search.output.exists()),
                *_outdated_data([*runs.values(), *tried], adopted),
            }
        ),
        adopted=adopted,
        sentinels=repeated,
        searches=searches,
    )


def _with_sentinels(repeated, study, to_train, pending, seed):
    """Add the sentinels. Returns all runs and the pending ones, both in order of execution."""
    runs = {run.id: run for run in sentinels.order(study.runs, to_train, repeated, seed)}
    missing = [run.id for run in repeated if not (run_record.folder(run.id) / "run.json").exists()]
    pending = pending | dict.fromkeys(missing, (State.MISSING, sentinels.PLANNED))
    return runs, {run_id: pending[run_id] for run_id in runs if run_id in pending}


def _check_remains(study, skipped, searches):
    """Check that this machine can do some of the runs, when none has a result yet."""
    can_search = any(not why_not for _, why_not in searches.values())
    elsewhere = any(launching.starts_elsewhere(run.launcher) for run in study.runs)
    if len(skipped) < len(study.runs) or can_search or elsewhere:
        return
    reasons = [*skipped.values(), *(why_not for _, why_not in searches.values())]
    reasons += [result.reason for result in study.search_results.values()]
    raise config_schema.ConfigError(
        "nothing remains: this machine can do none of the runs:\n"
        + "\n".join(dict.fromkeys(f"- {reason}" for reason in reasons))
    )


def _check_data_folders(study):
    for key in ("manual_dir", "store"):
        place = study.data[key]
        if place and not Path(place).is_dir():
            raise config_schema.ConfigError(
                f"data.{key}: there is no folder {place}{own_code.search_hint(place)}; make it, "
                "or say null"
            )


def _check_references(study):
    for entry in study.references:
        from dlbench.analysis import published_numbers  # late: it imports pyarrow

        published_numbers.read(entry["path"])


def _check_terms_accepted(datasets, study):
    """Check that the user accepted the terms of the datasets that are still to be fetched."""
    for name in sorted(datasets - set(study.data["terms_accepted"])):
        if not Path(f"results/data/{name}/source.json").exists():
            fetch_dataset.check_terms(name)


def _outdated_data(runs, adopted):
    """Yield manifests that are damaged, or of datasets that other code or files were made into."""
    names = {run.dataset for run in runs if judgement.has_data(run)}
    for name in sorted(names):
        path = Path("results/data", name, manifest.NAME)
        own = plugins.constants("datasets", name).get("FROM_FOLDER")
        if not path.is_file() or (name in adopted and not own):
            continue
        digest = adopted[name].digest if own else judgement.recipe(name)
        try:
            current = manifest.read(path.parent).get("code_sha256") == digest
        except Error:
            current = False
        if not current:
            yield str(path)


def _to_be_remade(runs, pending, image_settings):
    """Environments and images that exist but must be made again."""
    remade = set(_missing_environments([runs[run_id] for run_id in pending]))
    for run_id in pending:
        run = runs[run_id]
        if start_command.contained(run):
            if not judgement.made_from(run, judgement.Basis(images=image_settings))["environment"]:
                remade.add(trainer_image.image_path(run.environment))
            if trainer_image.failure(trainer_image.form_path(run)):
                remade.add(trainer_image.form_path(run))
    return remade


def _missing_environments(runs):
    """Stamp files of environments that are not installed, as in a copy of the results folder."""
    bare = [run for run in runs if not start_command.contained(run)]
    names = {run.environment for run in bare}
    missing = {
        name
        for name in names
        if not (
            trainer_environments.is_installed(name) or trainer_environments.unreachable_reason(name)
        )
    }
    stamps = {plan.environment_stamp(run) for run in bare if run.environment in missing}
    return {stamp for stamp in stamps if stamp and Path(stamp).exists()}


def searches_to_do(
    study: Study, devices: skipping.Devices
) -> dict[str, tuple[batch_searches.Search, str]]:
    """{id: (Search, why this machine cannot do it, or "")} of the searches to be done."""
    cannot = {
        key: skipping.skip_reason(search.run, devices, study) or ""
        for key, search in study.searches.items()
    }
    return {
        key: (search, cannot[key])
        for key, search in study.searches.items()
        # A search that was skipped is done once this machine can do it.
        if key not in study.search_results
        or (study.search_results[key].skipped and not cannot[key])
    }


def check_metrics(study: Study) -> None:
    """Check the metrics that are compared, that decide repeats, and that runs must reach.

    Raises Error: no program that uses patterns names one.
    """
    if not study.imports:  # imported logs may have any
        named = _metrics_named_by(study.runs)
        for index, entry in enumerate(study.compare):
            if "metric" in entry:
                _check_metric(entry["metric"], named, f"compare[{index}].metric")
    repeated = {
        (run.trainer, study.targets[run.id].metric): run
        for run in study.runs
        if run.id in study.targets
    }
    for (_, name), run in repeated.items():
        _check_metric(name, _metrics_named_by([run]), "repeats.metric")
    reached = {
        (run.trainer, name): run
        for run in study.runs
        for name in study.must_reach.get(run.id, {}).get(goals.METRICS, {})
    }
    for (_, name), run in reached.items():
        _check_metric(name, _metrics_named_by([run]), "must_reach.metrics", is_column=False)


def _metrics_named_by(runs: Iterable[Run]) -> set[str] | None:
    """The metrics that programs of runs name; None if that is not known."""
    names: set[str] = set()
    for run in {run.trainer: run for run in runs if run.is_external}.values():
        log = other_trainers.trainer(run)["log"]
        if log in log_patterns.names():
            log = yaml.safe_load(log_patterns.path(log).read_text(encoding="utf-8"))
        if not isinstance(log, Mapping):
            return None
        names |= log.get("metrics", {}).keys()
    return names


def _check_metric(name, named, where, is_column=True):
    """Refuse a metric that no program names and, where it may be one, that is no column."""
    if named is None or name in named or name == goals.THROUGHPUT:
        return
    from dlbench.tables.metrics import METRICS  # late: few studies name metrics

    columns = METRICS if is_column else ()
    if name in columns:
        return
    of_table = ", or a column of the table runs" if columns else ""
    raise Error(
        f"{where}: no pattern of a log names a metric {name!r}"
        f"{did_you_mean(name, [*sorted(named), *columns])}; expected one of those under metrics, "
        f"which are: {', '.join(sorted(named)) or 'none'}{of_table}"
    )


def check_log_patterns(trainers: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the patterns of the config's `trainers`, before anything is started.

    Raises Error: RE2 cannot read one.
    """
    for name, trainer in trainers.items():
        if isinstance(trainer["log"], Mapping):
            where = f"trainers.{name}.log"
            log_patterns.check_by_re2(log_patterns.parse(trainer["log"], where), where)
