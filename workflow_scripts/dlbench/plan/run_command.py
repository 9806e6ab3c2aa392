"""The arguments of what rules start: start_run.py, find-batch, prepare-image, dlbench import."""

import dataclasses
import functools
import json
import shlex
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files, own_code, plugins
from dlbench.common.files import sha256
from dlbench.images import trainer_image
from dlbench.machine import binding, fingerprints
from dlbench.plan.plan import Plan
from dlbench.records import judgement, run_record
from dlbench.starting import start_command
from dlbench.study import config, goals, other_trainers, trainer_environments
from dlbench.study.runs import FLAGS, Run
from dlbench.trainer import engine

CALIBRATIONS = "results/calibrations"  # what devices attain, a file for each kind


class StartRunArguments:
    """The result of `start_run_arguments`, quoted for the shell, computed when it is formatted.

    Snakemake evaluates the params of all runs at each start, also of finished ones.
    """

    __slots__ = ("plan", "run_id")

    def __init__(self, plan: Plan, run_id: str) -> None:
        self.plan = plan
        self.run_id = run_id

    def __str__(self) -> str:
        return _quoted(self)


def start_run_arguments(plan: Plan, run_id: str, with_secrets: bool = False) -> list[str]:
    """The arguments of start_run.py after its files: flags, then the trainer's command.

    `with_secrets`: include the secrets of the config's commands. Otherwise the commands have
    numbers instead, and start_run.py needs the variables of `plan.study.commands`.
    """
    run = plan.run(run_id)
    flags = [
        *_flags(plan, run),
        f"--label={plan.labels[run.id]}",
        f"--position={plan.position(run.id)}",
        f"--runs-after={plan.runs_after(run.id)}",
        f"--wait-for-quiet-s={plan.study.wait_for_quiet_s}",
        f"--attempts={plan.attempts}",
        f"--tries={plan.tries}",
    ]
    if plan.session:
        flags.append(f"--session={json.dumps(plan.session)}")
    if plan.study.others_share is not None:
        flags.append(f"--others-share={plan.study.others_share}")
    commands = plan.study.site if with_secrets else plan.study.commands.site
    if meter := commands.get("power_meter"):
        flags.append(f"--power-meter={meter}")
    if run.power_limit_w and (command := commands.get("power_limit_command")):
        flags.append(f"--power-limit-command={command}")
    if plan.study.checkpoint_every_min:
        flags.append(f"--checkpoint={_checkpoint(run)}")
    if run.id in plan.study.targets:
        target = dataclasses.asdict(plan.study.targets[run.id])
        if target["metric"] == goals.THROUGHPUT:
            del target["metric"]  # as in commands of before
        flags.append(f"--unless={json.dumps([judgement.earlier_repeats(run), target])}")
    if run.id in plan.skipped:
        flags.append(f"--skip={plan.skipped[run.id]}")
    if run.is_external:
        kind = other_trainers.trainer(run)["log"]
        flags.append(f"--external={kind if isinstance(kind, str) else json.dumps(kind)}")
        flags.append(f"--external-settings={json.dumps(_external_settings(plan, run))}")
    return [*flags, "--", *_trainer(plan, run)]


def _external_settings(plan, run):
    """What start_run.py needs to know of a run of another program, beside its log."""
    given = other_trainers.trainer(run)
    return {
        "sample_every_s": plan.study.sample_every_s,
        "site_binding": plan.study.site.get("binding", binding.AUTO),
        "share_gpus": bool(plan.study.site.get("share_gpus")),
        **{key: given[key] for key in other_trainers.AROUND if key in given},
    }


def find_batch_arguments(plan: Plan, search_id: str, memory_mb: int | None = None) -> list[str]:
    """The arguments of find-batch after its files: flags, then those of start_run.py for a try.

    `memory_mb`: limit of the tries on a node, MiB; None: all free memory.
    """
    search, why_not = plan.searches[search_id]
    run = search.run
    flags = [f"--spec={json.dumps(run.values(), sort_keys=True)}"]
    if why_not:
        return [*flags, f"--skip={why_not}"]
    processes = engine.strategy_of(run).processes_per_node(run) * run.copies_per_node
    flags.append(f"--processes={processes}")
    flags += [f"--memory-mb={memory_mb}"] if memory_mb else []
    tried = [f"--label={search.label()}", "--position=try 1", *_flags(plan, run)]
    return [*flags, "--", *tried, "--", *_trainer(plan, run, tries=True)]


def _flags(plan, run):
    """Flags of start_run.py that runs and tries have."""
    flags = [
        f"--spec={json.dumps(run.values(), sort_keys=True)}",
        f"--made-from={json.dumps(judgement.made_from(run, plan.basis))}",
        f"--time-limit-s={plan.study.time_limit_s}",
        f"--hang-limit-s={plan.study.hang_limit_s}",
        f"--device={plan.device_kind}",
        f"--facts={json.dumps({**plan.facts, 'user_files': user_files(run)})}",
        f"--network={plan.study.site['network']}",
        *(f"--module={name}" for name in plan.study.site["modules"]),
    ]
    return [*flags, *node_flags(plan), *image_flags(plan, run)]


def node_flags(plan: Plan) -> list[str]:
    """The flag with the address pattern of a cluster's nodes; [] if their names suffice."""
    pattern = plan.study.site.get("node_address")
    return [f"--node-address={pattern}"] if pattern else []


def image_flags(plan: Plan, run: Run) -> list[str]:
    """The flags with a run's image and the paths to bind into it; [] without an image."""
    if not start_command.contained(run):
        return []
    binds = [f"--bind={bind}" for bind in plan.binds(run)]
    return [f"--form={trainer_image.form_path(run)}", *binds]


def prepare_image_arguments(plan: Plan, image: str, form: str) -> list[str]:
    """Flags of dlbench prepare-image for the runs that take an image in a form.

    Raises Error: none does.
    """
    taking = [
        run
        for run in plan.with_tries
        if start_command.contained(run)
        and (run.environment, trainer_image.form_name(run)) == (image, form)
    ]
    if not taking:
        raise Error(f"no run of this study takes an image in the form {form!r}")
    chosen = json.dumps(trainer_image.options_of(taking[0]), sort_keys=True)
    flags = [f"--runtime={taking[0].runtime}", f"--options={chosen}"]
    python = trainer_image.settings(image, plan.study.images)["python"]
    flags += [f"--python={python}", f"--device={plan.device_kind}"]
    return flags + ["--any-packages"] * all(run.is_external for run in taking)


@functools.lru_cache(maxsize=1)  # Snakemake formats the params of a job several times in a row
def _quoted(arguments):
    return shlex.join(start_run_arguments(arguments.plan, arguments.run_id))


def _trainer(plan, run, tries=False):
    """The command of a trainer process. start_run.py puts launcher and runtime before it, and
    replaces FLAGS with the flags of the run.
    """
    data = f"results/data/{run.dataset}" if judgement.has_data(run) else ""
    if run.is_external:
        image = trainer_image.settings(run.environment, plan.study.images)
        bare = str(trainer_environments.trainer_python(run.environment))
        python = image["python"] if start_command.contained(run) else bare
        folder = str(run_record.folder(run.id) / other_trainers.FOLDER)
        template = plan.study.commands.trainers[run.trainer]
        return other_trainers.command(run, python, data, folder, template)
    trainer = [
        str(trainer_environments.trainer_python(run.environment)),
        str(own_code.project_path("workflow_scripts/train.py")),
    ]
    trainer += [FLAGS, "--log", f"results/runs/{run.id}/train.jsonl", "--device", plan.device_kind]
    if (binding := plan.study.site.get("binding", "auto")) != "auto":
        trainer += ["--site-binding", binding]
    trainer += ["--share-gpus"] * bool(plan.study.site.get("share_gpus"))
    trainer += ["--sample-every-s", str(plan.study.sample_every_s)]
    trainer += ["--packages", str(fingerprints.PACKAGES)]
    if plan.study.calibrate and not tries:
        trainer += ["--calibrations", CALIBRATIONS]
    if plan.study.checkpoint_every_min and not tries:
        trainer += ["--checkpoint", _checkpoint(run)]
        trainer += ["--checkpoint-every-min", str(plan.study.checkpoint_every_min)]
    if plan.study.model_folder:
        trainer += ["--model-folder", plan.study.model_folder]
    return trainer + ["--data", data] * bool(data)


def _checkpoint(run):
    """The folder of a run's checkpoints."""
    return str(run_record.folder(run.id) / "checkpoint")


def user_files(run: Run) -> dict[str, Any]:
    """The user's model or trainer that a run executes, for its log; {} if dlbench has both."""
    if run.is_external:
        files = other_trainers.trainer(run).get("files", [])
        trainer = {"sha256": other_trainers.digest(run.trainer)}
        return {"trainer": trainer | {"files": {name: _commit(name) for name in files}}}
    models = engine.plugin_kind(run.framework, "models")
    if plugins.is_builtin(models, run.model):
        return {}
    path = plugins.path(models, run.model)
    return {"model": {"file": str(path), "sha256": sha256(path), **_commit(str(path))}}


@functools.cache
def _commit(path):
    """As own_code.git_state gives it; a file that is not tracked is a change, too."""
    folder = path if Path(path).is_dir() else Path(path).parent
    return own_code.git_state(folder, Path(path).name if folder != path else ".", untracked="all")


def import_names(study: config.Study) -> list[str]:
    return [entry["name"] for entry in study.imports]


def import_inputs(study: config.Study, name: str) -> list[str]:
    """The files that an import reads, as inputs of its rule.

    Files with braces in their paths are left out, since Snakemake would take these for wildcards.
    They are read too, but a change to them alone is not noticed.
    """
    below = files.files_below(_import(study, name)["path"])
    return sorted(path for path in map(str, below) if not set("{}") & set(path))


def import_flags(study: config.Study, name: str) -> str:
    """The arguments of `dlbench import` without its outputs, quoted for the shell."""
    entry = _import(study, name)
    arguments = [entry["path"], f"--name={name}"]
    arguments += [f"--kind={entry['kind']}"] if "kind" in entry else []
    arguments += [f"--fields={json.dumps(entry['fields'])}"] if "fields" in entry else []
    arguments += [f"--path-fields={entry['path_fields']}"] if "path_fields" in entry else []
    return shlex.join(arguments)


def _import(study, name) -> dict[str, Any]:
    return next(entry for entry in study.imports if entry["name"] == name)
