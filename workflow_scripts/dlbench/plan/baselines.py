"""The baselines of a study: their names, inputs and commands.

- One for each way in which runs exchange gradients: all-reduce, up to the size of their models'
  gradients.
- One for each kind of device as runs use it: matrix products, copies, files, and the reader of each
  dataset.
- Results are kept for each machine, identified by its hardware; on a cluster, whose nodes are other
  machines, for the site. If runs name their nodes, devices are measured on each node, and the
  exchange on the nodes of each run.
"""

import dataclasses
import functools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.baselines import rounds
from dlbench.common import networks, own_code, plugins
from dlbench.common.files import json_digest, sha256
from dlbench.common.run_fields import ALWAYS, tagged
from dlbench.machine import hardware
from dlbench.plan import run_command
from dlbench.plan.plan import Plan, environment_stamp
from dlbench.records import judgement
from dlbench.study import trainer_environments
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.trainer import engine

FOLDER, TABLE = Path("results/baselines"), "results/tables/baselines.parquet"
READING = (*tagged(ALWAYS), "sequence_length")  # of a run that reads
# What a figure's BASELINES says: baselines are its only table, or are drawn beside others if there
# are any.
ALONE, BESIDE = "alone", "beside"
# (study, skipped, their baselines) of the latest plan
_latest: tuple[Any, Any, dict[str, "Baseline"]] = (None, None, {})


@dataclass(frozen=True)
class Baseline:
    """One start of measure_baselines.py.

    Attributes:
        run: the baseline is started as one step of this run would be.
        models: whose gradients are the largest messages; () for baselines of a single device.
        reads: runs of the study, one for each dataset whose reader is measured.
    """

    run: Run
    models: tuple[str, ...] = ()
    reads: tuple[Run, ...] = ()

    @functools.cached_property
    def name(self) -> str:
        """A readable prefix and a digest of everything that the baseline depends on."""
        run = self.run
        subject = f"device-{run.precision}"
        if self.models:
            subject = f"{run.strategy}-{run.nodes}x{run.devices_per_node}"
        depends = [run.values(), self.models, [reading(read) for read in self.reads]]
        return f"{run.framework}-{subject}-{json_digest(depends)[:10]}"


def of_plan(plan: Plan) -> dict[str, Baseline]:
    """{name: Baseline} for the runs of a study that this machine can do.

    Those of the latest plan are kept: rules ask some ten times for each, of hundreds of nodes.
    """
    global _latest
    if not (_latest[0] is plan.study and _latest[1] is plan.skipped):
        _latest = plan.study, plan.skipped, _of_study(plan.study, plan.skipped)
    return _latest[2]


def _of_study(study: Study, skipped: Mapping[str, str]) -> dict[str, Baseline]:
    done = [run for run in study.without_probes if run.id not in skipped and not run.is_external]
    exchanges: dict[Any, list[Run]] = {}
    devices: dict[Any, list[Run]] = {}
    for run in sorted(done, key=lambda run: run.id):
        for name in networks.expand_hosts(run.node) if run.node else (None,):
            key = _key(dataclasses.replace(run, node=name), rounds.OF_DEVICE)
            devices.setdefault(key, []).append(run)
        if exchanges_gradients(run):
            exchanges.setdefault(_key(run, rounds.OF_EXCHANGE), []).append(run)
    baselines = []
    for key, runs in exchanges.items():
        models = tuple(sorted({run.model for run in runs}))
        baselines.append(Baseline(_run_like(key, runs), models=models))
    for key, runs in devices.items():
        reads = {run.dataset: run for run in reversed(runs) if judgement.has_data(run)}
        of_each = tuple(reads[dataset] for dataset in sorted(reads))
        baselines.append(Baseline(_run_like(key, runs), reads=of_each))
    return {baseline.name: baseline for baseline in baselines}


def exchanges_gradients(run: Run) -> bool:
    """Whether the exchange of a run's gradients can be measured by itself."""
    alone = run.copies_per_node == 1
    return run.devices > 1 and alone and engine.strategy_of(run).reduces


def machine_folder(plan: Plan, submits: bool) -> str:
    """The folder of this machine's baselines.

    `submits`: whether baselines are jobs of a scheduler, on other nodes than this one.
    """
    if submits:
        return "site-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", plan.study.site["name"])
    return json_digest(hardware.constant_facts(hardware.Files()))[:12]


def files(plan: Plan, submits: bool) -> list[str]:
    """The files of the study's baselines on this machine. `submits`: as in `machine_folder`."""
    return sorted(file(plan, name, submits) for name in of_plan(plan))


def file(plan: Plan, name: str, submits: bool) -> str:
    """One of `files`."""
    return str(FOLDER / machine_folder(plan, submits) / f"{name}.json")


def find(plan: Plan, name: str) -> Baseline:
    """The baseline of a name. Raises Error: the study has none of this name."""
    known = of_plan(plan)
    if name not in known:
        raise Error(f"no baseline {name!r} in this study; it has: {', '.join(known) or 'none'}")
    return known[name]


def inputs(plan: Plan, name: str) -> list[str]:
    """The inputs of a baseline: its environment or image, and the datasets that it reads."""
    baseline = find(plan, name)
    stamp = environment_stamp(baseline.run)
    manifests = [f"results/data/{run.dataset}/manifest.json" for run in baseline.reads]
    return [stamp, *manifests] if stamp else manifests


def arguments(plan: Plan, name: str, output: str) -> str:
    """The arguments of start_baseline.py after its files: flags and the command, shell-quoted.

    `output`: the file to write.
    """
    baseline, site = find(plan, name), plan.study.site
    run = baseline.run
    flags = [
        f"--spec={json.dumps(run.values(), sort_keys=True)}",
        f"--time-limit-s={plan.study.time_limit_s}",
        f"--device={plan.device_kind}",
        f"--network={site['network']}",
        *(f"--module={module}" for module in site["modules"]),
        f"--site={site['name']}",
    ]
    flags += run_command.node_flags(plan) + run_command.image_flags(plan, run)
    command = [
        str(trainer_environments.trainer_python(run.environment)),
        str(own_code.project_path("workflow_scripts/measure_baselines.py")),
        f"--spec={json.dumps(dataclasses.asdict(run), sort_keys=True)}",
        f"--site={site['name']}",
        f"--output={output}",
        f"--device={plan.device_kind}",
        *(f"--model={model}" for model in baseline.models),
        *(f"--read={json.dumps(_reading_with_folder(run))}" for run in baseline.reads),
    ]
    if plan.study.model_folder:
        command.append(f"--model-folder={plan.study.model_folder}")
    return shlex.join([*flags, "--", *command])


def reading(run: Run) -> dict[str, Any]:
    """The fields of a run that determine how items are read."""
    return {name: getattr(run, name) for name in READING}


def for_figure(name: str, figures: tuple[str, ...]) -> list[str]:
    """[the table of baselines] if drawing a figure requires it, else [].

    `figures`: of the study. If baselines are the only table of one of them, they are measured, and
    then also drawn by the figures that draw them beside others.
    """
    use = plugins.constants("figures", name).get("BASELINES")
    return [TABLE] if use == ALONE or (use == BESIDE and any(map(is_alone, figures))) else []


def digest_if_beside(name: str, figures: tuple[str, ...]) -> str:
    """The digest of the table if a figure draws it but does not require it; else ""."""
    beside = plugins.constants("figures", name).get("BASELINES") == BESIDE
    return "" if not beside or for_figure(name, figures) else digest()


def digest() -> str:
    """The digest of the table of baselines; "" if there is none."""
    return sha256(TABLE) if Path(TABLE).exists() else ""


def is_alone(figure: str) -> bool:
    """Whether baselines are the only table of a figure."""
    return plugins.constants("figures", figure).get("BASELINES") == ALONE


def _key(run, names):
    return tuple((name, getattr(run, name)) for name in names)


def _run_like(key, runs):
    model = min(run.model for run in runs)
    return Run(model=model, dataset="synthetic", batch_per_device=1, steps=1, **dict(key))


def _reading_with_folder(run):
    return reading(run) | {"folder": f"results/data/{run.dataset}"}
