"""What the workflow is to do: the study's runs, their states, and how to start each.

The rules ask here for inputs, flags and priorities; nothing in here knows
Snakemake.
"""

import functools
import json
import re
import shlex
import sys
from dataclasses import dataclass

from dlbench import Error, adoption, code, config, plugins, records, site
from dlbench.records import State

ATTEMPTS = 2  # a run that fails for a passing reason is tried once more


@dataclass(frozen=True)
class Plan:
    """A study on this machine.

    `pending` maps the ids of runs to be done to (State, why); `adopted` maps the datasets
    that are there already to (folder, digest).
    """

    study: config.Study
    runs: dict
    skipped: dict
    pending: dict
    device_kind: str
    config_json: str
    forced: frozenset
    adopted: dict
    attempts: int = ATTEMPTS

    @property
    def datasets(self):
        """The datasets of the study that are stored."""
        names = sorted({run.dataset for run in self.runs.values()})
        return [name for name in names if records.recipe(name)]

    def training_inputs(self, wildcards):
        """What a run needs: nothing once it is trained, or where it is skipped.

        Its code is not among them: the record knows its digest.
        """
        run = self._run(wildcards.run_id)
        inputs = {}
        if run.id in self.pending and run.id not in self.skipped:
            inputs["environment"] = f"results/environments/{run.environment}.json"
            if records.recipe(run.dataset):
                inputs["data"] = f"results/data/{run.dataset}/manifest.json"
        return inputs

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
        return str(self.adopted[dataset][0])

    def fetching(self, dataset):
        """Flags of fetch_dataset.py that say where files may come from, quoted for the shell."""
        data = self.study.data
        flags = [f"--manual-dir={data['manual_dir']}"] if data["manual_dir"] else []
        flags += ["--offline"] if data["offline"] else []
        flags += ["--terms-accepted"] if dataset in data["terms_accepted"] else []
        return shlex.join(flags)

    def conversion_inputs(self, wildcards):
        return {
            "source": f"results/data/{wildcards.dataset}/source.json",
            "code": records.data_code(wildcards.dataset),
        }

    def code(self, program):
        return code.files(program)

    def figure(self, name):
        """The constants of a figure's file: CATEGORY and CAPTION."""
        return plugins.constants("figures", name)

    def figure_code(self, name):
        return code.files("draw_figure.py", plugins.path("figures", name))

    @property
    def export_environment(self):
        """What says that the environment of `export_python` is installed."""
        return f"results/environments/{self._export_environment}.json"

    @property
    def export_python(self):
        """The Python that exports runs to TensorBoard, which comes with TensorFlow."""
        return str(site.trainer_python(self._export_environment))

    def recipe(self, dataset):
        return records.recipe(dataset)

    def spec(self, run_id):
        return json.dumps(self._run(run_id).values(), sort_keys=True)

    def priority(self, run_id):
        """Higher for runs that come earlier in the seeded order."""
        return len(self.runs) - self._positions[run_id]

    def directive_image(self, run_id):
        run = self._run(run_id)
        return plugins.load("runtimes", run.runtime).directive_image(run)

    def command(self, run_id, attempt):
        """What follows start_run.py and its files: flags and the trainer, quoted for the shell."""
        run = self._run(run_id)
        flags = [
            f"--spec={self.spec(run_id)}",
            f"--position={self._count(run_id)}/{len(self.runs)}",
            f"--made-from={json.dumps(records.made_from(run, self._recipes))}",
            f"--time-limit-s={self.study.time_limit_s}",
            f"--hang-limit-s={self.study.hang_limit_s}",
            f"--attempt={attempt}",
            f"--attempts={self.attempts}",
        ]
        if self.study.checkpoint_every_min:
            flags.append(f"--checkpoint={_checkpoint(run)}")
        if run_id in self.skipped:
            flags.append(f"--skip={self.skipped[run_id]}")
        return shlex.join([*flags, "--", *self._trainer(run)])

    def _trainer(self, run):
        """The command that trains a run, its launcher outside and its runtime inside."""
        python = str(site.trainer_python(run.environment))
        trainer = [python, "workflow_scripts/train.py", *run.flags()]
        trainer += ["--log", f"results/runs/{run.id}/train.jsonl", "--device", self.device_kind]
        trainer += ["--sample-every-s", str(self.study.sample_every_s)]
        if self.study.checkpoint_every_min:
            trainer += ["--checkpoint", _checkpoint(run)]
            trainer += ["--checkpoint-every-min", str(self.study.checkpoint_every_min)]
        if self.study.model_folder:
            trainer += ["--model-folder", self.study.model_folder]
        if records.recipe(run.dataset):
            trainer += ["--data", f"results/data/{run.dataset}"]
        inside = plugins.load("runtimes", run.runtime).command(run, trainer)
        return plugins.load("launchers", run.launcher).command(run, inside, python)

    @property
    def _export_environment(self):
        return min(run.environment for run in self.runs.values())

    @functools.cached_property
    def _recipes(self):
        return {name: digest for name, (_, digest) in self.adopted.items()}

    @functools.cached_property
    def _positions(self):
        return {run_id: index for index, run_id in enumerate(self.runs)}

    def _count(self, run_id):
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
                f"no run {run_id!r} in this study{plugins.nearest(run_id, self.runs)}"
            ) from None


def plan(settings):
    """Expand a merged config, look at the records, and say what is to be done.

    Ends the program with the mistakes where the config has any.
    """
    try:
        return _plan(settings)
    except Error as error:
        sys.exit(f"The config cannot be used:\n{error}")


def _plan(settings):
    study = config.study(settings)
    devices = site.devices(study.site)
    runs = {run.id: run for run in study.runs}
    skipped = {run.id: reason for run in study.runs if (reason := site.skip_reason(run, devices))}
    if len(skipped) == len(runs):
        raise config.ConfigError(
            "nothing remains: this machine can do none of the runs:\n"
            + "\n".join(dict.fromkeys(f"- {reason}" for reason in skipped.values()))
        )
    adopted = adoption.found(study)
    recipes = {name: digest for name, (_, digest) in adopted.items()}
    pending = {}
    for run in study.runs:
        records.training_code(run)  # a file with a syntax error is named here, before any work
        state, reason = records.state(run, run.id not in skipped, recipes)
        if state is not State.CURRENT:
            pending[run.id] = state, reason
    return Plan(
        study=study,
        runs=runs,
        skipped=skipped,
        pending=pending,
        device_kind=devices.kind,
        config_json=json.dumps(settings, sort_keys=True),
        forced=frozenset(_forced(pending)),
        adopted=adopted,
    )


def _checkpoint(run):
    """Where a run's checkpoints lie."""
    return str(records.folder(run.id) / "checkpoint")


def _forced(pending):
    """Files that exist but must be made again."""
    forced = set()
    for run_id, (state, _) in pending.items():
        if state is State.STALE:
            forced |= {f"results/runs/{run_id}/{name}" for name in ("train.jsonl", "run.json")}
        elif state is State.UNREAD:
            forced.add(f"results/runs/{run_id}/run.json")
    return forced
