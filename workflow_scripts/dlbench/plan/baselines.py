"""Which baselines a study asks for, under which names, and by which commands they are measured.

- Of each way in which runs exchange gradients: all-reduce up to the gradients of their models.
- Of each kind of device as runs use it: products, copies, files, and the reader of each dataset.
- They are kept for each machine, known by its hardware; on a cluster, whose nodes are not this one,
  for the site.
"""

import contextlib
import dataclasses
import functools
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.common.files import json_digest, sha256
from dlbench.machine import hardware
from dlbench.plan import run_command
from dlbench.plan.plan import Plan, environment_stamp
from dlbench.records import staleness
from dlbench.study import trainer_environments
from dlbench.study.runs import Run

FOLDER, TABLE = Path("results/baselines"), "results/tables/baselines.parquet"
# The fields that make it another baseline.
OF_BOTH = ("framework", "environment", "runtime", "runtime_options", "threads_per_device")
OF_EXCHANGE = (
    *OF_BOTH,
    *("strategy", "strategy_options", "launcher", "nodes", "devices_per_node"),
)
OF_DEVICE = (*OF_BOTH, "precision")
READING = ("model", "dataset", "batch_per_device", "sequence_length")  # of a run that reads
# Of a figure: it has no other table, or draws baselines where there are some.
ALONE, BESIDE = "alone", "beside"


@dataclass(frozen=True)
class Baseline:
    """One start of measure_baselines.py.

    Attributes:
        run: one step of such a run would be started in the same way.
        models: whose gradients are the largest messages; () of a single device.
        reads: runs of the study, one for each dataset that is read.
    """

    run: Run
    models: tuple[str, ...] = ()
    reads: tuple[Run, ...] = ()

    @functools.cached_property
    def name(self) -> str:
        """Readable words and a digest of all that it depends on."""
        run = self.run
        what = f"device-{run.precision}"
        if self.models:
            what = f"{run.strategy}-{run.nodes}x{run.devices_per_node}"
        depends = [run.values(), self.models, [reading(one) for one in self.reads]]
        return f"{run.framework}-{what}-{json_digest(depends)[:10]}"


def of_plan(plan: Plan) -> dict[str, Baseline]:
    """The baselines of a study's runs that this machine can do, by their names."""
    own = plan.study.without_probes
    done = [run for run in own if run.id not in plan.skipped and not run.is_external]
    exchanges: dict[Any, list[Run]] = {}
    devices: dict[Any, list[Run]] = {}
    for run in sorted(done, key=lambda run: run.id):
        devices.setdefault(_key(run, OF_DEVICE), []).append(run)
        if exchanges_gradients(run):
            exchanges.setdefault(_key(run, OF_EXCHANGE), []).append(run)
    found = []
    for key, runs in exchanges.items():
        models = tuple(sorted({run.model for run in runs}))
        found.append(Baseline(_run_like(key, runs), models=models))
    for key, runs in devices.items():
        reads = {run.dataset: run for run in reversed(runs) if staleness.has_data(run)}
        of_each = tuple(reads[dataset] for dataset in sorted(reads))
        found.append(Baseline(_run_like(key, runs), reads=of_each))
    return {baseline.name: baseline for baseline in found}


def exchanges_gradients(run: Run) -> bool:
    """Whether a run's devices add up their gradients in a way that can be measured by itself."""
    with contextlib.suppress(Error):  # a framework of one's own has no such folder
        ways = plugins.names(f"{run.framework}/exchanges")
        return run.devices > 1 and run.copies_per_node == 1 and run.strategy in ways
    return False


def machine_folder(plan: Plan, submits: bool) -> str:
    """The folder of this machine's baselines.

    Args:
        submits: whether they are jobs of a scheduler, on nodes other than this one.
    """
    if submits:
        return "site-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", plan.study.site["name"])
    return json_digest(hardware.constant_facts(hardware.Files()))[:12]


def files(plan: Plan, submits: bool) -> list[str]:
    """The baselines of the study on this machine."""
    place = FOLDER / machine_folder(plan, submits)
    return sorted(str(place / f"{name}.json") for name in of_plan(plan))


def find(plan: Plan, name: str) -> Baseline:
    """The baseline of a name.

    Raises:
        Error: the study has none of this name.
    """
    known = of_plan(plan)
    if name not in known:
        raise Error(f"no baseline {name!r} in this study; it has: {', '.join(known) or 'none'}")
    return known[name]


def inputs(plan: Plan, name: str) -> list[str]:
    """What a baseline needs: the trainer's environment, or its image, and the datasets it reads."""
    baseline = find(plan, name)
    stamp = environment_stamp(baseline.run)
    manifests = [f"results/data/{run.dataset}/manifest.json" for run in baseline.reads]
    return [stamp, *manifests] if stamp else manifests


def arguments(plan: Plan, name: str, output: str) -> str:
    """What follows start_baseline.py and its files: flags and the command, quoted for the shell.

    Args:
        output: the file that is written.
    """
    baseline, site = find(plan, name), plan.study.site
    run = baseline.run
    flags = [
        f"--spec={json.dumps(run.values(), sort_keys=True)}",
        f"--time-limit-s={plan.study.time_limit_s}",
        f"--device={plan.device_kind}",
        f"--network={site['network']}",
        *(f"--module={module}" for module in site["modules"]),
    ]
    flags += run_command.node_flags(plan) + run_command.image_flags(plan, run)
    command = [
        str(trainer_environments.trainer_python(run.environment)),
        str(own_code.here("workflow_scripts/measure_baselines.py")),
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
    """The fields of a run on which it depends how items are read."""
    return {name: getattr(run, name) for name in READING}


def for_figure(name: str, figures: tuple[str, ...]) -> list[str]:
    """The table of baselines if a figure has them measured, else [].

    Args:
        figures: those of the study; one that has no other table has baselines measured for all
            that draw them.
    """
    use = plugins.constants("figures", name).get("BASELINES")
    return [TABLE] if use == ALONE or (use == BESIDE and any(map(is_alone, figures))) else []


def digest_if_beside(name: str, figures: tuple[str, ...]) -> str:
    """The digest of a table that a figure draws where there is one, but does not ask for; or ""."""
    beside = plugins.constants("figures", name).get("BASELINES") == BESIDE
    return "" if not beside or for_figure(name, figures) else digest()


def digest() -> str:
    """The digest of the table, "" where there is none: for what has it if it is there."""
    return sha256(TABLE) if Path(TABLE).exists() else ""


def is_alone(figure: str) -> bool:
    """Whether a figure has no table but that of baselines."""
    return plugins.constants("figures", figure).get("BASELINES") == ALONE


def _key(run, names):
    return tuple((name, getattr(run, name)) for name in names)


def _run_like(key, runs):
    model = min(run.model for run in runs)
    return Run(model=model, dataset="synthetic", batch_per_device=1, steps=1, **dict(key))


def _reading_with_folder(run):
    return reading(run) | {"folder": f"results/data/{run.dataset}"}
