"""Find and read Snakemake profiles as Snakemake does, without starting it."""

import importlib.util
import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, tools
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
