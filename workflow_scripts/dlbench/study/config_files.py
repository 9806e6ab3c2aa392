"""Config files: which are read, and how they are merged.

They are merged as Snakemake merges `--configfile` into `config.yaml`: mappings key by key,
everything else, the matrix too, as a whole. If another workflow uses this one as a module, its
config has this workflow's under the key `dlbench`.

A config also names folders of the user with models, datasets and pictures.
"""

from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.study import yaml_files
from dlbench.study.config_schema import ConfigError


def read(*paths: str | Path) -> dict[str, Any]:
    """Read and merge some config files; later ones take precedence.

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
    """The config files that are always read; later ones take precedence.

    dlbench's config.yaml has all keys. The config.yaml of the working directory, if that is another
    folder, and site.yaml, which describes a site's machine, are merged into it if they exist.

    Args:
        in_a_module: whether another workflow uses this one as a module; then the config.yaml in the
            working directory is that of the other workflow.
    """
    ours = str(own_code.project_path("config.yaml"))
    around = [] if own_code.in_project_folder() or in_a_module else ["config.yaml"]
    return [ours, *(name for name in (*around, "site.yaml") if Path(name).exists())]


def laid_over(settings: dict[str, Any]) -> dict[str, Any]:
    """The config if another workflow uses this one as a module: its settings over `files`.

    Raises:
        ConfigError: as `read`.
    """
    return merge(read(*files(in_a_module=True)), _our_part(settings))


def settings_of(named: list[str]) -> dict[str, Any]:
    """The content of `files` and of these config files, merged as in the Snakefile."""
    absent = next((file for file in named if not Path(file).exists()), None)
    if absent:
        raise ConfigError(
            f"--configfile {absent}: there is no such file. All words after --configfile are taken "
            "for files: name runs and targets before it"
        )
    return read(*files(), *named)


def merge(base: Any, over: Any) -> Any:
    """Merge one config into another: mappings key by key, everything else as a whole."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in over.items()}}


def _our_part(content):
    """The value of the key `dlbench` if a config has it; else the whole config."""
    return content.get("dlbench", content) if isinstance(content, dict) else content


def register_folders(config: dict[str, Any]) -> None:
    """Let names of models and datasets be those of the user's folders, too.

    Raises:
        ConfigError: a folder is missing, a name is taken, or a file describes no dataset.
    """
    for kind, key in (("models", "model_folder"), ("datasets", "dataset_folder")):
        try:
            plugins.add_user_folder(kind, config[key])
        except Error as error:
            raise ConfigError(f"{key}: {error}{own_code.search_hint(config[key])}") from None
    try:
        plugins.set_user_names("datasets", "images", config["data"]["images"])
    except Error as error:
        raise ConfigError(f"data.images.{error}") from None
    for name in plugins.names("datasets") if config["dataset_folder"] else ():
        if plugins.is_builtin("datasets", name):
            continue
        try:
            stated = plugins.constants("datasets", name)
        except Error as error:
            raise ConfigError(f"dataset_folder: {error}") from None
        if stated.get("SYNTHETIC") is not False or "KIND" not in stated:
            raise ConfigError(
                f"dataset_folder: {plugins.path('datasets', name)}: expected SYNTHETIC = False and "
                "a KIND, as files of datasets have (docs/adding.md)"
            )
