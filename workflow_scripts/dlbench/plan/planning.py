"""What the workflow is to do: the study's runs, their states, and how to start each.

The rules ask here for inputs, flags and priorities; nothing in here knows
Snakemake.
"""

import functools
import json
import re
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.common import own_code, phrases, plugins
from dlbench.data import fetch_dataset, stores
from dlbench.images import trainer_image
from dlbench.log import event_fields, event_log
from dlbench.plan import run_command, sentinels, site_devices, skipping
from dlbench.records import costs, enough, judgement, run_record, sessions, staleness
from dlbench.records.judgement import State
from dlbench.starting import start_command
from dlbench.study import config, config_schema, trainer_environments
from dlbench.study.runs import DEFAULTS

ATTEMPTS = 2  # a run that fails for a passing reason is tried once more
TO_DO = {
    State.MISSING: "to train",
    State.STALE: "to train again",
    State.DAMAGED: "to train again, its logs put aside",
    State.UNREAD: "to read again from the log",
}
WHAT_STAYS = (
    "Not all is done. What is done stays: the same command, started again, goes on with the rest.\n"
    "workflow_scripts/status.py, with the same --configfile, says how each run stands."
)
MOST_REASONS = 8  # on the screen
LOCKS = Path(".snakemake/locks")


@dataclass(frozen=True)
class Plan:
    """A study on this machine.

    `runs` are those of the study and the session's sentinels. `pending` maps the ids of runs to be
    done to (State, why); `adopted` maps the datasets that others converted to their Store.
    """

    study: config.Study
    runs: dict
    skipped: dict
    pending: dict
    device_kind: str
    config_json: str
    forced: frozenset
    adopted: dict[str, stores.Store]
    sentinels: sentinels.Chosen
    attempts: int = ATTEMPTS

    def config_file(self, keep=True):
        """The merged config as a file; `keep`: write it, where it is not there yet."""
        return str(config.keep(self.config_json) if keep else config.kept(self.config_json))

    @property
    def datasets(self):
        """The datasets of the study that are stored."""
        return sorted({run.dataset for run in self.runs.values() if staleness.has_data(run)})

    @property
    def to_train(self):
        """The runs that are to be trained, in the order of their execution."""
        return [
            self.runs[run_id]
            for run_id, (state, _) in self.pending.items()
            if state is not State.UNREAD and run_id not in self.skipped
        ]

    @functools.cached_property
    def labels(self):
        """{run id: label}, each another."""
        return self.study.labels | {run.id: run.label() for run in self.sentinels.runs}

    def begin_session(self):
        """Begin a session, where there is something to train, with its sentinels."""
        # Beside a workflow at work, whose session it would end, Snakemake starts nothing.
        if self.to_train and not any(LOCKS.glob("*")):
            sessions.begin([run.values() for run in self.sentinels.runs])

    def keep_code(self):
        """Keep lists of the files that are executed, so that those that change can be named."""
        executed = [staleness.training_code(run) for run in self.to_train]
        executed += [staleness.data_code(dataset) for dataset in self.datasets]
        for files in set(map(tuple, executed)):
            own_code.keep_digests(files)

    @property
    def why(self):
        """Lines that say how many runs are to be done, and why: which files changed, say."""
        reasons = Counter(self._why(run_id) for run_id in self.pending).most_common()
        for reason, number in reasons[:MOST_REASONS]:
            yield f"{phrases.counted(number, 'run')} {reason}"
        if rest := sum(number for _, number in reasons[MOST_REASONS:]):
            yield f"{rest} more for other reasons; status.py has them all"
        if self.sentinels.words:
            yield self.sentinels.words

    def _why(self, run_id):
        state, reason = self.pending[run_id]
        if run_id in self.skipped:
            return f"to skip: {self.skipped[run_id]}"
        return f"{TO_DO[state]}: {reason.replace(f'{run_record.folder(run_id)}/', '')}"

    def put_damaged_aside(self):
        """Keep the logs of damaged runs, which are trained again, and say so on stderr."""
        for run_id, (state, reason) in self.pending.items():
            log = run_record.folder(run_id) / "train.jsonl"
            if state is State.DAMAGED and log.is_file():
                kept = event_log.keep_aside(log)
                print(f"{run_id}: {reason}; kept as {kept}, trained again", file=sys.stderr)

    @property
    def standing_files(self):
        """Logs and records of the runs that need nothing."""
        return [
            str(run_record.folder(run_id) / name)
            for run_id in self.runs.keys() - self.pending.keys()
            for name in ("train.jsonl", "run.json")
        ]

    def training_inputs(self, wildcards):
        """What a run needs: nothing once it is trained, or where it is skipped.

        Its code is not among them: the record knows its digest.
        """
        run = self._run(wildcards.run_id)
        inputs = {}
        if run.id in self.pending and run.id not in self.skipped:
            if environment := _environment(run):
                inputs["environment"] = environment
            if run.id in self.study.targets:
                # They decide whether this one is needed.
                before = [run_id for run_id in enough.earlier(run) if run_id in self.pending]
                inputs["earlier"] = [f"results/runs/{run_id}/run.json" for run_id in before]
            if staleness.has_data(run):
                inputs["data"] = f"results/data/{run.dataset}/manifest.json"
        return inputs

    @property
    def imports(self):
        return [entry["name"] for entry in self.study.imports]

    @property
    def references(self):
        return [entry["path"] for entry in self.study.references]

    def import_files(self, name):
        """What an import reads, but for files with braces, which Snakemake takes for wildcards.

        Those are read, too; a change to them alone is not noticed.
        """
        path = Path(self._import(name)["path"])
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        return sorted(name for name in map(str, files) if not set("{}") & set(name))

    def import_flags(self, name):
        """Arguments of import_logs.py but for its outputs, quoted for the shell."""
        entry = self._import(name)
        flags = [entry["path"], f"--name={name}"]
        flags += [f"--kind={entry['kind']}"] if "kind" in entry else []
        flags += [f"--fields={json.dumps(entry['fields'])}"] if "fields" in entry else []
        flags += [f"--path-fields={entry['path_fields']}"] if "path_fields" in entry else []
        return shlex.join(flags)

    @property
    def unread(self):
        """A pattern that matches the runs whose logs stand but whose records do not."""
        ids = [run_id for run_id, (state, _) in self.pending.items() if state is State.UNREAD]
        return "|".join(map(re.escape, ids)) or "(?!)"

    @property
    def adoptable(self):
        """A pattern that matches the datasets that are there already."""
        return "|".join(self.adopted) or "(?!)"

    def adopted_folder(self, dataset):
        return str(self.adopted[dataset].folder)

    def fetching(self, dataset):
        """Flags of fetch_dataset.py that say where files may come from, quoted for the shell."""
        data = self.study.data
        flags = [f"--manual-dir={data['manual_dir']}"] if data["manual_dir"] else []
        flags += ["--offline"] if data["offline"] else []
        flags += ["--terms-accepted"] if dataset in data["terms_accepted"] else []
        return shlex.join(flags)

    def code(self, program):
        return own_code.executed_files(program)

    def figure(self, name):
        """The constants of a figure's file: CATEGORY and CAPTION."""
        return plugins.constants("figures", name)

    def figure_code(self, name):
        return own_code.executed_files("draw_figure.py", plugins.path("figures", name))

    @property
    def export_environment(self):
        """What says that the environment of `export_python` is installed."""
        return f"results/environments/{self._export_environment}.json"

    @property
    def export_python(self):
        """The Python that exports runs to TensorBoard, which comes with TensorFlow."""
        return str(trainer_environments.trainer_python(self._export_environment))

    def recipe(self, dataset):
        return staleness.recipe(dataset)

    def spec(self, run_id):
        return json.dumps(self._run(run_id).values(), sort_keys=True)

    def priority(self, run_id):
        """Higher for runs that come earlier in the seeded order."""
        return len(self.runs) - self._positions[run_id]

    @property
    def environments(self):
        """What says that the environments and images of the runs are there."""
        done = (run for run in self.runs.values() if run.id not in self.skipped)
        return sorted({_environment(run) for run in done} - {None})

    def image(self, name):
        """The config's entry of an image, as JSON."""
        return json.dumps(self.study.images.get(name, {}), sort_keys=True)

    def preparing(self, image, form):
        """Flags of prepare_image.py for the runs that take an image in a form, for the shell."""
        return shlex.join(run_command.preparing(self, image, form))

    def directive_image(self, run_id):
        """The image that Snakemake's container directive enters, or None.

        That of a run that is to be done: its form is there by the time the run starts.
        """
        run = self._run(run_id)
        if (
            run.id in self.skipped
            or run.id not in self.pending
            or not start_command.by_directive(run)
        ):
            return None
        return trainer_image.directive_image(run)

    @property
    def directive_environment(self):
        """Variables that give the container directive what it has no words for."""
        entering = [
            run
            for run in self.runs.values()
            if run.id in self.pending and start_command.by_directive(run)
        ]
        found = {}
        binds = dict.fromkeys(bind for run in entering for bind in self.binds(run))
        for runtime in {run.runtime for run in entering}:
            module = plugins.load("runtimes", runtime)
            found |= module.directive_environment(binds, self.device_kind == "gpu")
        return found

    def binds(self, run):
        """What a run's container must see of this machine beside the workflow's folder."""
        store = self.adopted[run.dataset].folder if run.dataset in self.adopted else None
        here = Path.cwd()
        # The results may be a link to a larger disk.
        needed = [here / path for path in (self.study.model_folder, store, "results") if path]
        outside = [
            str(path)
            for place in needed
            for path in (place, place.resolve())
            if not path.is_relative_to(here)
        ]
        binds = trainer_image.settings(run.environment, self.study.images)["binds"]
        return list(dict.fromkeys([*outside, *binds]))

    def command(self, run_id, attempt=None):
        """What follows start_run.py and its files: flags and the trainer, quoted for the shell."""
        return shlex.join(run_command.words(self, self._run(run_id), attempt))

    @property
    def _export_environment(self):
        names = {run.environment for run in self.runs.values()}
        installed = (
            name
            for name in names
            if (trainer_environments.ENVIRONMENTS / name / "uv.lock").is_file()
        )
        return min(installed, default=DEFAULTS["environment"])

    @functools.cached_property
    def facts(self):
        """What the log of each run says of the workflow and of the site."""
        facts = {key: self.study.site[key] for key in ("name", "interconnect", "storage")}
        return {**own_code.git_state(), "site": facts}

    @functools.cached_property
    def recipes(self):
        """Digests of the adopted datasets' recipes, by dataset."""
        return stores.recipes(self.adopted)

    @functools.cached_property
    def _positions(self):
        return {run_id: index for index, run_id in enumerate(self.runs)}

    def _import(self, name):
        return next(entry for entry in self.study.imports if entry["name"] == name)

    def position(self, run_id):
        """Which run of how many this is, those counted first that are done already."""
        return len(self.runs) - len(self.pending) + self._pending_positions.get(run_id, 0) + 1

    @functools.cached_property
    def _pending_positions(self):
        ordered = (run_id for run_id in self.runs if run_id in self.pending)
        return {run_id: index for index, run_id in enumerate(ordered)}

    def _run(self, run_id):
        try:
            return self.runs[run_id]
        except KeyError:
            raise Error(
                f"no run {run_id!r} in this study{phrases.did_you_mean(run_id, self.runs)}"
            ) from None


def see_readable(paths):
    """End the program where one of some config files, if it is there, cannot be read."""
    try:
        config.read(*(path for path in paths if Path(path).exists()))
    except Error as error:
        sys.exit(f"The config cannot be used:\n{error}")


def plan(settings, chosen=lambda study, to_train, took_s: sentinels.Chosen()):
    """Expand a merged config, look at the records, and say what is to be done.

    Ends the program with the mistakes where the config has any.

    Args:
        chosen: gives the session's sentinels: sentinels.choose for a start that begins one,
            sentinels.kept for its jobs.
    """
    try:
        return _plan(settings, chosen)
    except Error as error:
        sys.exit(f"The config cannot be used:\n{error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was started")


def _plan(settings, chosen):
    study = config.study(settings)
    devices = site_devices.devices(study.site)
    runs = {run.id: run for run in study.runs}
    skipped = {
        run.id: reason
        for run in study.runs
        if (reason := skipping.skip_reason(run, devices, study))
    }
    if len(skipped) == len(runs) and not any(map(_starts_elsewhere, study.runs)):
        raise config_schema.ConfigError(
            "nothing remains: this machine can do none of the runs:\n"
            + "\n".join(dict.fromkeys(f"- {reason}" for reason in skipped.values()))
        )
    _see_places(study)
    _see_references(study)
    adopted = stores.adopted(study)
    recipes = stores.recipes(adopted)
    pending, took_s = {}, {}
    for run in study.runs:
        staleness.training_code(run)  # a file with a syntax error is named here, before any work
        state, reason, record = judgement.state_and_record(
            run, run.id not in skipped, recipes, study.images, study.time_limit_s
        )
        if state is not State.CURRENT:
            pending[run.id] = state, reason
        elif run.id not in skipped and record["status"] in event_fields.ENDED_WELL:
            took_s[run.id] = costs.recorded_s(record)
    to_train = [runs[run_id] for run_id in pending if run_id not in skipped]
    for run in to_train:
        if start_command.contained(run):
            trainer_image.check_source(run.environment, study)
    _see_terms_accepted(
        {run.dataset for run in to_train if staleness.has_data(run)} - {*adopted}, study
    )
    repeated = chosen(study, [r for r in to_train if pending[r.id][0] is not State.UNREAD], took_s)
    if repeated.runs:
        runs, pending = _with_sentinels(repeated.runs, study, to_train, pending, settings["seed"])
    return Plan(
        study=study,
        runs=runs,
        skipped=skipped,
        pending=pending,
        device_kind=devices.kind,
        config_json=json.dumps(settings, sort_keys=True),
        forced=frozenset({*_forced(runs, pending, study.images), *_outdated_data(runs, adopted)}),
        adopted=adopted,
        sentinels=repeated,
    )


def _with_sentinels(repeated, study, to_train, pending, seed):
    """(all runs, what of them is to be done), both in the order of execution."""
    runs = {run.id: run for run in sentinels.order(study.runs, to_train, repeated, seed)}
    missing = [run.id for run in repeated if not (run_record.folder(run.id) / "run.json").exists()]
    pending = pending | dict.fromkeys(missing, (State.MISSING, sentinels.PLANNED))
    return runs, {run_id: pending[run_id] for run_id in runs if run_id in pending}


def _see_places(study):
    """See that folders of data that the config names are there."""
    for key in ("manual_dir", "store"):
        place = study.data[key]
        if place and not Path(place).is_dir():
            raise config_schema.ConfigError(
                f"data.{key}: there is no folder {place}; make it, or say null"
            )


def _see_references(study):
    """See that the files of published numbers are as they must be."""
    for entry in study.references:
        from dlbench.analysis import published_numbers  # late: it imports pyarrow

        published_numbers.read(entry["path"])


def _see_terms_accepted(datasets, study):
    """See that the user may use the datasets that are yet to be fetched."""
    for name in sorted(datasets - set(study.data["terms_accepted"])):
        if not Path(f"results/data/{name}/source.json").exists():
            fetch_dataset.refuse_terms(name)


def _starts_elsewhere(run):
    """Whether a run is none of this machine's, but may be done by others that write its record."""
    return getattr(plugins.load("launchers", run.launcher), "ELSEWHERE", False)


def _environment(run):
    """What says that a run's environment, or its image in the form it takes, is there, if any."""
    if start_command.contained(run):
        return trainer_image.form_path(run)
    return (
        f"results/environments/{run.environment}.json"
        if trainer_environments.has_environment(run)
        else None
    )


def _outdated_data(runs, adopted):
    """Manifests of datasets that were converted from other files, or by other code."""
    names = {run.dataset for run in runs.values() if staleness.has_data(run)}
    for name in sorted(names - adopted.keys()):
        path = Path(f"results/data/{name}/manifest.json")
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if manifest.get("code_sha256") != staleness.recipe(name):
            yield str(path)


def _forced(runs, pending, image_settings):
    """Files that exist but must be made again."""
    forced = set()
    for run_id, (state, _) in pending.items():
        run = runs[run_id]
        made_from = staleness.made_from(run, image_settings=image_settings)
        if start_command.contained(run) and not made_from["environment"]:
            forced.add(trainer_image.image_path(run.environment))
        if start_command.contained(run) and trainer_image.failure(trainer_image.form_path(run)):
            forced.add(trainer_image.form_path(run))
        if (
            not start_command.contained(run)
            and not trainer_environments.trainer_python(run.environment).exists()
        ):
            # The list of what is installed was copied without it, or to where its Python is not.
            forced |= {path for path in [_environment(run)] if path and Path(path).exists()}
        if state in (State.STALE, State.DAMAGED):
            forced |= {f"results/runs/{run_id}/{name}" for name in ("train.jsonl", "run.json")}
        elif state is State.UNREAD:
            forced.add(f"results/runs/{run_id}/run.json")
    return forced
