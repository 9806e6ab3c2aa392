"""Find and read Snakemake profiles as Snakemake does; write one for the nodes of a scheduler."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, plugins, tools
from dlbench.schedulers import Nodes, Queue, display_name
from dlbench.study import yaml_files

OURS = Path("profiles")
FILE = re.compile(r"(?:profile|config)(?:\.v(\d+)\+)?\.yaml")
PLUGIN = "snakemake-executor-plugin-"
DEFAULT_SETTINGS = {
    "slurm": {"status_command": "sacct", "init_seconds_before_status_checks": 40},
}


@dataclass(frozen=True)
class Profile:
    """A profile's file and its content; `hidden` if Snakemake does not find it by its name."""

    file: Path
    content: dict[str, Any]
    hidden: bool

    @property
    def executor(self) -> str:
        """The name of the executor; local if jobs run on the machine of Snakemake."""
        return self.content.get("executor") or "local"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the executor, by their names in its plugin."""
        prefix, defaults = f"{self.executor}-", DEFAULT_SETTINGS.get(self.executor, {})
        names = (name for name in self.content if name.startswith(prefix))
        given = {name.removeprefix(prefix).replace("-", "_"): self.content[name] for name in names}
        return {**defaults, **given}

    @property
    def defaults(self) -> dict[str, Any]:
        """Default resources of all jobs."""
        return _resources(self.content.get("default-resources"))

    def value(self, rule: str, resource: str) -> Any:
        """The value of a resource of a rule, or None."""
        return {**self.defaults, **self._of_rule(rule)}.get(resource)

    def _of_rule(self, rule):
        settings = self.content.get("set-resources") or {}
        if isinstance(settings, dict):
            return _resources(settings.get(rule))
        prefix = f"{rule}:"
        lines = [line.removeprefix(prefix) for line in settings if line.startswith(prefix)]
        return _resources(lines)


def read(name: str) -> Profile:
    """Read a profile by its name, as in slurm, or its folder, as in profiles/slurm.

    Raises Error: there is no such profile, or it is not YAML.
    """
    for folder, hidden in _folders(name):
        file = _file(folder)
        if file:
            return Profile(file, _content(file), hidden)
    ours = sorted(folder.name for folder in OURS.glob("*") if _file(folder))
    raise Error(
        f"no profile {name!r}{phrases.did_you_mean(name, ours)}: "
        "expected a folder with a profile.yaml here, "
        f"in {_user_folder()} or in {OURS}, which has: {', '.join(ours) or 'none'}"
    )


def installed(executor: str) -> bool:
    """Whether Snakemake has an executor, built in or by a plugin."""
    module = f"snakemake_executor_plugin_{executor.replace('-', '_')}"
    return executor in ("local", "dryrun", "touch") or importlib.util.find_spec(module) is not None


def installation(executor: str) -> str:
    """The command that installs an executor's plugin, in the locked version if there is one."""
    if executor == "slurm":
        return tools.install_command("slurm")
    is_locked = executor == "cluster-generic"
    return tools.uv_command("sync" if is_locked else f"pip install {PLUGIN}{executor}")


def _folders(name):
    """[(folder, hidden)] where a profile may be: Snakemake's folders in order, then dlbench's."""
    if Path(name).exists():
        return [(Path(name), False)]
    site = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)[0]
    places = [_user_folder() / name, Path(site, "snakemake", name)]
    return [*((place, False) for place in places), (OURS / name, True)]


def _user_folder():
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "snakemake")


def _file(folder):
    """A profile's file: the one for the newest version of Snakemake up to the installed one."""
    if folder.is_file():
        return folder
    ours = int(metadata.version("snakemake").split(".")[0])
    matches = {file: match for file in folder.glob("*") if (match := FILE.fullmatch(file.name))}
    majors = {file: int(match[1] or 0) for file, match in matches.items()}
    fitting = [file for file in sorted(majors) if majors[file] <= ours]
    return max(fitting, key=majors.get, default=None)


def _content(file):
    content = yaml_files.read(file) or {}
    if not isinstance(content, dict):
        raise Error(f"{file}: expected keys with values, found a {type(content).__name__}")
    return content


def _resources(settings):
    """Resources from a mapping or from a list of name=value, numbers as numbers."""
    if isinstance(settings, dict):
        pairs = list(settings.items())
    else:
        pairs = [str(text).partition("=")[::2] for text in settings or []]
    return {str(name).strip(): _plain(value) for name, value in pairs}


def _plain(value):
    """A value as Snakemake reads it, which removes quotes around a text."""
    text = str(value).strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


SITE_FILE = "site.yaml"
# Of Lmod and Environment Modules: what is loaded in this shell, names with colons between them.
LOADED = "LOADEDMODULES"
DEFAULT_NAME = "this machine"  # site.name in config.yaml


@dataclass(frozen=True)
class NewSite:
    """A queue, the kind of its nodes that a site.yaml describes, and the cluster's name.

    Nodes and name are None if the scheduler does not say them.
    """

    scheduler: str
    queue: Queue
    nodes: Nodes | None
    name: str | None = None

    @property
    def kind(self) -> str:
        """What a device of the nodes is: cpu or gpu."""
        return "gpu" if self.nodes and self.nodes.gpus else "cpu"


def find_schedulers() -> list[str]:
    """The schedulers whose programs this machine has, names in schedulers/.

    Grid Engine has all programs of PBS, and more: those with more programs come first.
    """
    programs = {
        name: plugins.constants("schedulers", name)["PROGRAMS"]
        for name in plugins.names("schedulers")
    }
    found = [name for name in programs if not tools.missing_program(programs[name])]
    return sorted(found, key=lambda name: -len(programs[name]))


def of_this_machine(queue: str | None = None) -> tuple[str | None, NewSite | None]:
    """The scheduler of this machine, or None; the NewSite to write, or None if one is there.

    It is the first that answers: programs of others may be left from earlier.

    Raises Error: a queue is asked for, and there is no scheduler, no such queue, or a site.yaml.
    """
    schedulers, has_site = find_schedulers(), Path(SITE_FILE).exists()
    if queue and not schedulers:
        raise Error(f"--partition {queue}: this machine has the programs of no scheduler")
    if queue and has_site:
        raise Error(
            f"{SITE_FILE} is there already, and nothing is written over it: leave --partition "
            "out to keep it, or move it away"
        )
    errors = []
    for scheduler in schedulers:
        try:
            site = describe(scheduler, queue)
        except Error as error:
            errors.append(str(error))
        else:
            return scheduler, None if has_site else site
    if queue:
        raise Error("\n".join(errors))
    if errors:
        names = ", ".join(map(display_name, schedulers))
        print(f"runs are for this machine, since no scheduler answers ({names})", file=sys.stderr)
    return None, None


def describe(scheduler: str, queue: str | None = None) -> NewSite:
    """The queue for a study, and its nodes: those with the most GPUs if there are any.

    `queue`: its name; None: the one that has the most GPUs a node, then the default one. Raises
    Error: the scheduler does not answer, or has no such queue.
    """
    module = plugins.load("schedulers", scheduler)
    queues = module.queues()
    best = max(queues.values(), key=_suitability, default=None)
    chosen = best if queue is None else queues.get(queue)
    if chosen is None:
        raise Error(
            f"{display_name(scheduler)} has no queue {queue or ''!r}"
            f"{phrases.did_you_mean(queue, queues)}; it has: {', '.join(sorted(queues)) or 'none'}"
        )
    kinds = sorted(chosen.nodes, key=lambda nodes: (nodes.gpus or 0, nodes.up, nodes.count))
    return NewSite(
        scheduler,
        chosen,
        kinds[-1] if kinds else None,
        module.cluster_name() if hasattr(module, "cluster_name") else None,
    )


def _suitability(queue):
    has_nodes = any(nodes.up for nodes in queue.nodes) or not queue.nodes
    return queue.up and has_nodes, queue.maximum("gpus") or 0, queue.default, queue.name


def text(site: NewSite, environ: Mapping[str, str] = os.environ) -> str:
    """The site.yaml that describes the nodes of a NewSite.

    `environ`: with the modules that are loaded now, which are proposed.
    """
    nodes = site.nodes
    number = {"cpu": nodes and nodes.cores, "gpu": nodes and nodes.gpus}[site.kind]
    cores = nodes and nodes.cores
    modules = [name for name in environ.get(LOADED, "").split(":") if name]
    unit = "A device is a core." if site.kind == "cpu" else "A device is a GPU."
    unknown = "" if number and cores else " What is auto is not known here: write the number."
    lines = [
        f"# {SITE_FILE}: a node, as {display_name(site.scheduler)} describes those of "
        f"{site.queue.name}: {nodes or 'unknown'}.",
        "# Merged over config.yaml; docs/clusters.md has all keys. Written by dlbench init.",
        "site:",
        "  # How readers of the results know your cluster; the record of every run has it.",
        f"  name: {json.dumps(site.name) if site.name else DEFAULT_NAME}",
        f"  # {unit}{unknown}",
        f"  device: {site.kind}",
        f"  devices_per_node: {number or 'auto'}",
        f"  cores_per_node: {cores or 'auto'}",
        *([f"  memory_mb_per_node: {nodes.memory_mb}"] if nodes and nodes.memory_mb else []),
        "  # The most nodes that a run may have.",
        f"  nodes: {nodes.count if nodes else 1}",
        "  # For readers of the results, as in InfiniBand HDR and Lustre.",
        "  interconnect: null",
        "  storage: null",
        "  # Modules that are loaded for each run"
        + (f"; here are loaded now: [{', '.join(modules)}]" if modules else "."),
        "  modules: []",
    ]
    return "\n".join(lines) + "\n"
