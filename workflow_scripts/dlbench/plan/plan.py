"""The plan of a start: the runs of a study on this machine, the state of each, and what is to do.

The rules take inputs, flags and priorities from a Plan, which does not import Snakemake. Each start
that has something to do writes a new session file, which is an input of its runs. So Snakemake,
which compares dates, trains runs whose outputs exist but are damaged or come from other code. The
list of other existing files that are made again works in the same way.
"""

import contextlib
import csv
import functools
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files, own_code, phrases, plugins, tools
from dlbench.data import stores
from dlbench.images import trainer_image
from dlbench.log import attempts, event_log
from dlbench.plan import sentinels
from dlbench.records import judgement, run_record, sessions
from dlbench.records.judgement import State
from dlbench.starting import fates, start_command
from dlbench.study import batch_searches, config, trainer_environments
from dlbench.study.runs import DEFAULTS, Run
from dlbench.tables import cells

RECORDS_LIST = "results/records.sha256"
RUNS_TABLE = Path("results/tables/runs.csv")
ATTEMPTS = 2  # a run that fails for a reason that may pass is tried once more
TO_DO = {
    State.MISSING: "to train",
    State.STALE: "to train again",
    State.DAMAGED: "to train again, its logs put aside",
    State.UNREAD: "to read again from the log",
}
FAILURE_MESSAGE = (
    "Not all is done. What is done stays: the same command, started again, goes on with the rest.\n"
    "`{status}`, with the same --configfile, shows the state of each run."
)
MAX_REASONS = 8  # on the screen


@dataclass(frozen=True)
class SessionFiles:
    """The files of a session.

    Attributes:
        session: as sessions.new returns it; None before the first.
        starts: whether this start begins it.
        remade: existing paths that are made again in it.
    """

    session: dict[str, str] | None
    starts: bool
    remade: frozenset[str]

    @property
    def file(self) -> list[str]:
        """The input of its runs: [its file], or [] before the first session."""
        return [str(sessions.file(self.session["id"]))] if self.session else []

    @property
    def done(self) -> list[str]:
        """[The file that exists once all its runs have records], or [] before the first session."""
        return [str(sessions.done_file(self.session["id"]))] if self.session else []

    @property
    def remade_list(self) -> list[str]:
        """[The file that lists what is made again], or [] if nothing is."""
        return (
            [str(sessions.remade_file(self.session["id"]))] if self.remade and self.session else []
        )

    def remade_lists(self, path: str) -> list[str]:
        """[The last list of remade files that has a path], or [].

        It is an input of the rule that makes the file: Snakemake makes the file again when the list
        is new, and not as long as the list stays.
        """
        if path in self.remade and self.starts:
            return self.remade_list
        return [self._earlier_lists[path]] if path in self._earlier_lists else []

    @functools.cached_property
    def _earlier_lists(self):
        return sessions.lists_of_remade()


@dataclass(frozen=True)
class Plan:
    """A study on this machine.

    Attributes:
        runs: {run id: run} of the study and of the session's sentinels.
        skipped: {run id: why this machine cannot do the run}.
        pending: {run id: (State, reason)} of the runs to be done.
        remade: files that exist and must be made again before the runs.
        adopted: {dataset: Store} of the datasets that others converted.
        searches: {search id: (Search, why this machine cannot do it, or "")} of those to be done.
        new_session: the session of this start, if it has something to do.
        attempts: how often a run is tried that fails for a reason that may pass.
        tries: the same with attempts that are preempted, cancelled, or lose their node.
        reported: names of the functions of rules that have printed or checked already.
    """

    study: config.Study
    runs: dict
    skipped: dict
    pending: dict
    device_kind: str
    config_json: str
    remade: frozenset
    adopted: dict[str, stores.Store]
    sentinels: sentinels.Chosen
    searches: dict[str, tuple[batch_searches.Search, str]]
    new_session: dict[str, str] | None = None
    attempts: int = ATTEMPTS
    tries: int = 2 * ATTEMPTS
    reported: set[str] = field(default_factory=set, compare=False)

    def config_file(self, write: bool = True) -> str:
        """The path of the merged config; `write`: write the file unless it exists."""
        path_of = config.write_merged_config if write else config.merged_config_path
        return str(path_of(self.config_json))

    def run(self, run_id: str) -> Run:
        """The run of an id. Raises Error: there is none in this study."""
        try:
            return self.runs[run_id]
        except KeyError:
            raise Error(
                f"no run {run_id!r} in this study{phrases.did_you_mean(run_id, self.runs)}"
            ) from None

    @property
    def datasets(self) -> list[str]:
        """The datasets of the study that are stored as shards."""
        return sorted({run.dataset for run in self.with_tries if judgement.has_data(run)})

    @property
    def to_train(self) -> list[Run]:
        """The runs to be trained, in the order of their execution."""
        return [
            self.runs[run_id]
            for run_id, (state, _) in self.pending.items()
            if state is not State.UNREAD and run_id not in self.skipped
        ]

    @functools.cached_property
    def labels(self) -> dict[str, str]:
        """{run id: label}; no two labels are equal."""
        return self.study.labels | {run.id: run.label() for run in self.sentinels.runs}

    @functools.cached_property
    def session_files(self) -> SessionFiles:
        starts = self.new_session is not None and self.has_work
        session = self.new_session if starts else sessions.current()
        return SessionFiles(session, starts, self.remade)

    @property
    def session(self) -> dict[str, str] | None:
        """The session that its runs belong to; None before the first."""
        return self.session_files.session

    @property
    def has_work(self) -> bool:
        """Whether this start has to do anything before it can make the tables."""
        planned = self.pending or self.remade or self.searches
        return bool(planned or unfinished_session() or unlisted(self.runs))

    def record_code_digests(self) -> None:
        """Record digests of the files that runs execute, to name those that change later."""
        executed = [judgement.training_code(run) for run in self.to_train]
        executed += [judgement.data_code(dataset) for dataset in self.datasets]
        for paths in set(map(tuple, executed)):
            own_code.save_digests(paths)

    @property
    def summary_lines(self) -> Iterator[str]:
        """Lines that say how many runs are to be done and why, as which files changed."""
        if self.searches:
            yield f"largest batches to find first: {len(self.searches)}"
            yield from (search.label() for search, _ in self.searches.values())
        reasons = Counter(self._reason_of(run_id) for run_id in self.pending).most_common()
        for reason, number in reasons[:MAX_REASONS]:
            yield f"{phrases.counted(number, 'run')} {reason}"
        if rest := sum(number for _, number in reasons[MAX_REASONS:]):
            yield f"{rest} more for other reasons; dlbench status has them all"
        if self.sentinels.message:
            yield self.sentinels.message
        yield from trainer_environments.describe_choices(self.with_tries)

    def _reason_of(self, run_id):
        state, reason = self.pending[run_id]
        if run_id in self.skipped:
            return f"to skip: {self.skipped[run_id]}"
        return f"{TO_DO[state]}: {reason.replace(f'{run_record.folder(run_id)}/', '')}"

    def start_session(self, session: Mapping[str, str]) -> None:
        """Start a session, as sessions.new returns it, and record what its runs rely on."""
        self.move_logs_aside()
        fates.forget_links()
        trainer_environments.write_choices(self.with_tries)
        self.record_code_digests()
        sessions.start(session, [run.values() for run in self.sentinels.runs])

    def move_logs_aside(self) -> None:
        """Move aside the logs of runs that are trained again; print which of them are damaged."""
        for run_id, (state, reason) in self.pending.items():
            log = run_record.folder(run_id) / "train.jsonl"
            if state is State.DAMAGED and log.is_file():
                aside = event_log.keep_aside(log)
                print(f"{run_id}: {reason}; kept as {aside}, trained again", file=sys.stderr)
            elif state is State.STALE:
                attempts.put_measured_aside(log)

    def files(self, run_id: str) -> list[str]:
        """The log and the record of a run, which the rule makes."""
        return [str(run_record.folder(run_id) / name) for name in ("train.jsonl", "run.json")]

    def training_inputs(self, run_id: str) -> list[str]:
        """The inputs of a run to be done: the file of the session, and what training needs.

        Its code is no input: the record has the digest of the code.
        """
        run = self.run(run_id)
        if run_id in self.skipped or self.is_unread(run_id):
            return self.session_files.file
        inputs = [*self.session_files.file, *inputs_of_run(run)]
        if run_id in self.study.targets:
            # Earlier repeats decide whether this one is needed.
            inputs += [
                f"results/runs/{earlier}/run.json" for earlier in judgement.earlier_repeats(run)
            ]
        return inputs

    def inputs_of_trained(self, run_id: str) -> list[str]:
        """What `training_inputs` returned when a run with a valid record was trained."""
        record = run_record.read(run_record.folder(run_id) / "run.json")
        session = record["provenance"].get("session")
        session_file = [str(sessions.file(session["id"]))] if session else []
        if record["status"] == "skipped":
            return session_file
        return [*session_file, *self.training_inputs(run_id)[len(self.session_files.file) :]]

    @property
    def with_tries(self) -> list[Run]:
        """The runs, and the first try of each search for a largest batch to be done."""
        tries = [search.run for search, why_not in self.searches.values() if not why_not]
        return [*self.runs.values(), *tries]

    def is_unread(self, run_id: str) -> bool:
        """Whether a run has a valid log, but no valid record."""
        return self.pending.get(run_id, (None, ""))[0] is State.UNREAD

    @property
    def untrained_pattern(self) -> str:
        """A pattern that matches the ids of runs to be recorded without training."""
        return phrases.any_of(
            [key for key in self.pending if key in self.skipped or self.is_unread(key)]
        )

    @property
    def adoptable_pattern(self) -> str:
        """A pattern that matches the names of the datasets that others converted."""
        return phrases.any_of([*self.adopted])

    def fetch_flags(self, dataset: str) -> str:
        """Flags of dlbench fetch-dataset: where files may come from, quoted for the shell."""
        data = self.study.data
        flags = [f"--manual-dir={data['manual_dir']}"] if data["manual_dir"] else []
        flags += ["--offline"] if data["offline"] else []
        flags += ["--terms-accepted"] if dataset in data["terms_accepted"] else []
        return shlex.join(flags)

    def code(self, program: str, *named: Path) -> list[str]:
        """The files that a program executes, including add-ons that it loads by name."""
        files = own_code.executed_files(program, *named)
        return [str(own_code.project_path(file)) for file in files]

    @property
    def export_environment(self) -> str:
        """The stamp file of the environment of `export_python`."""
        return f"results/environments/{self._export_environment}.json"

    @property
    def export_python(self) -> str:
        """The Python that exports runs to TensorBoard, from an environment with TensorFlow."""
        return str(trainer_environments.trainer_python(self._export_environment))

    def priority(self, run_id: str) -> int:
        """Higher for runs that come earlier in the seeded order."""
        return len(self.runs) - self._positions[run_id]

    @property
    def environments(self) -> list[str]:
        """The stamp files of the runs' environments and images."""
        runs = [run for run in self.with_tries if run.id not in self.skipped]
        return sorted(stamp for stamp in set(map(environment_stamp, runs)) if stamp)

    def is_by_directive(self, run_id: str) -> bool:
        """Whether a run is to be trained, in an image that the container directive enters."""
        is_to_train = run_id in self.pending and run_id not in self.skipped
        return is_to_train and start_command.by_directive(self.run(run_id))

    @property
    def may_enter_images(self) -> bool:
        """Whether Snakemake's container directive enters the image of any run."""
        return bool(self.searches) or any(map(start_command.by_directive, self.runs.values()))

    def directive_image(self, run_id: str) -> str | None:
        """The image that Snakemake's container directive enters for a run, or None.

        None also if the image could not be made: start_run.py records why.
        """
        return (
            trainer_image.directive_image(self.run(run_id))
            if self.is_by_directive(run_id)
            else None
        )

    @functools.cached_property
    def by_directive(self) -> list[Run]:
        """The runs to be done that enter their image by Snakemake's container directive."""
        pending = (self.runs[run_id] for run_id in self.pending)
        return [run for run in pending if start_command.by_directive(run)]

    @property
    def directive_environment(self) -> dict[str, str]:
        """Environment variables for what the container directive cannot express."""
        variables: dict[str, str] = {}
        binds = dict.fromkeys(bind for run in self.by_directive for bind in self.binds(run))
        for runtime in {run.runtime for run in self.by_directive}:
            module = plugins.load("runtimes", runtime)
            variables |= module.directive_environment(binds, self.device_kind == "gpu")
        return variables

    def binds(self, run: Run) -> list[str]:
        """The paths to bind into a run's container beside the workflow's folder."""
        store = self.adopted[run.dataset].folder if run.dataset in self.adopted else None
        here = Path.cwd()
        # The results may be a link to a larger disk.
        needed = [here / path for path in (self.study.model_folder, store, "results") if path]
        both = [path for place in needed for path in (place, place.resolve())]
        outside = [str(path) for path in both if not path.is_relative_to(here)]
        binds = trainer_image.settings(run.environment, self.study.images)["binds"]
        return list(dict.fromkeys([*outside, *binds]))

    @property
    def _export_environment(self):
        # The default framework is the only one with TensorBoard in its environment.
        names = {r.environment for r in self.runs.values() if r.framework == DEFAULTS["framework"]}
        installed = (n for n in names if (trainer_environments.folder(n) / "uv.lock").is_file())
        return min(installed, default=trainer_environments.chosen(DEFAULTS["environment"]))

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the workflow and the site that go into the log of each run."""
        facts = {key: self.study.site[key] for key in ("name", "interconnect", "storage")}
        study = {"study": self.study.name, "release": own_code.release()}
        return own_code.git_state() | study | {"site": facts}

    @functools.cached_property
    def basis(self) -> judgement.Basis:
        """What decides whether the results of its runs are valid."""
        recipes = stores.recipes(self.adopted)
        return judgement.Basis(recipes, self.study.images, self.study.time_limit_s)

    @functools.cached_property
    def _positions(self):
        return {run_id: index for index, run_id in enumerate(self.runs)}

    def position(self, run_id: str) -> str:
        """The place of a run that is trained, finished ones counted: 3/36, or sentinel 1/3."""
        repeated = [run.id for run in self.sentinels.runs]
        if run_id in repeated:
            return f"sentinel {repeated.index(run_id) + 1}/{len(repeated)}"
        total = len(self.study.runs) - len(self.skipped)
        return f"{total - self._pending_after[run_id][0]}/{total}"

    def runs_after(self, run_id: str) -> int:
        """The number of runs and sentinels to be done after a run."""
        return sum(self._pending_after[run_id])

    def train_again(self, run_ids: Iterable[str]) -> None:
        """Have runs trained whose records are valid, as the command line asks for."""
        pending = dict.fromkeys(run_ids, (State.STALE, "the command line asks for it"))
        pending |= self.pending
        self.pending.clear()
        self.pending.update((run_id, pending[run_id]) for run_id in self.runs if run_id in pending)

    @functools.cached_property
    def _pending_after(self):
        """{run id: [number of runs, number of sentinels] to be trained after it}."""
        counts, after, sentinels = {}, [0, 0], {run.id for run in self.sentinels.runs}
        for run_id in reversed(self.runs):
            counts[run_id] = [*after]
            after[run_id in sentinels] += run_id in self.pending and run_id not in self.skipped
        return counts


def environment_stamp(run: Run) -> str | None:
    """The stamp file of a run's environment or of its image's form; None if it needs neither."""
    if start_command.contained(run):
        return trainer_image.form_path(run)
    needed = trainer_environments.has_environment(run)
    return f"results/environments/{run.environment}.json" if needed else None


def inputs_of_run(run: Run) -> list[str]:
    """The files that must exist before a run starts: of its environment or image, and its data."""
    data = [f"results/data/{run.dataset}/manifest.json"] if judgement.has_data(run) else []
    return [*filter(None, [environment_stamp(run)]), *data]


def unfinished_session() -> list[str]:
    """The id of the last session, if not all of its runs have their records."""
    session = sessions.current()
    is_open = session and not sessions.done_file(session["id"]).exists()
    return [session["id"]] if session and is_open else []


def unlisted(run_ids: Iterable[str]) -> list[str]:
    """The runs whose records are not in the list, or have changed since it was written."""
    try:
        listed_ns = os.stat(RECORDS_LIST).st_mtime_ns
        lines = Path(RECORDS_LIST).read_text(encoding="utf-8").splitlines()
    except OSError:
        return list(run_ids)
    listed = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}

    def is_listed(path):
        is_older = os.stat(path).st_mtime_ns < listed_ns
        return is_older or listed.get(str(path)) == files.sha256(path)

    return [key for key in run_ids if not is_listed(run_record.folder(key) / "run.json")]


def replaced_tables(study: str) -> Iterator[str]:
    """Yield the warning; nothing if there are no tables, or those of this study."""
    former = _study_of_tables()
    if former not in (None, study):
        elsewhere = tools.dlbench_command("partial --output FOLDER")
        yield (
            f"tables and figures in results/ are those of the study {former}; those of {study} "
            f"take their place. {elsewhere} puts a study's elsewhere"
        )


def _study_of_tables():
    unreadable = contextlib.suppress(OSError, csv.Error, UnicodeDecodeError)
    with unreadable, open(RUNS_TABLE, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if cells.is_own(row) and row.get("study"):
                return row["study"]
    return None
