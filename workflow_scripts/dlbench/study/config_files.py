"""Config files: which are read, and how they are laid over one another.

As Snakemake lays `--configfile` over `config.yaml`: mappings key by key, everything else, the
matrix too, as a whole. In the config of a workflow that uses ours as a module, ours is what stands
under `dlbench`.
"""

from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code
from dlbench.study import yaml_files
from dlbench.study.config_schema import ConfigError


def read(*paths: str | Path) -> dict[str, Any]:
    """The merged content of some config files, the last one winning.

    Raises:
        ConfigError: a file is missing, is not YAML or has a key twice.
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
    """The config files that are read without being named, the last one winning.

    Ours has all keys. Over it come, where they are there, config.yaml of the working directory,
    where that is another folder than ours, and site.yaml, what a site says of its machine.

    Args:
        in_a_module: another workflow uses ours as a module; that config.yaml is its own.
    """
    ours = str(own_code.project_path("config.yaml"))
    around = [] if own_code.in_project_folder() or in_a_module else ["config.yaml"]
    return [ours, *(name for name in (*around, "site.yaml") if Path(name).exists())]


def laid_over(settings: dict[str, Any]) -> dict[str, Any]:
    """The config of a module that another workflow gives these settings: over those of `files`.

    Raises:
        ConfigError: as `read`.
    """
    return merge(read(*files(in_a_module=True)), _our_part(settings))


def settings_of(named: list[str]) -> dict[str, Any]:
    """The content of `files` with these config files over it, merged as in the Snakefile."""
    absent = next((file for file in named if not Path(file).exists()), None)
    if absent:
        raise ConfigError(
            f"--configfile {absent}: there is no such file. All words after --configfile are taken "
            "for files: name runs and targets before it"
        )
    return read(*files(), *named)


def merge(base: Any, over: Any) -> Any:
    """One config laid over another: mappings key by key, everything else as a whole."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in over.items()}}


def _our_part(content):
    """What stands under `dlbench` in the config of a workflow that uses ours, else all of it."""
    return content.get("dlbench", content) if isinstance(content, dict) else content
