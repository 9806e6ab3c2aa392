"""What a config adds to dlbench's own files: models, names of datasets, and trainers."""

from collections.abc import Iterator
from typing import Any

from dlbench import Error
from dlbench.common import own_code, plugins
from dlbench.study import other_trainers
from dlbench.study.config_schema import ConfigError


def register(config: dict[str, Any]) -> None:
    """Register the user's folder of models, the names of the user's pictures, and the trainers.

    Raises:
        ConfigError: there is no such folder, a name is taken, or a trainer has mistakes.
    """
    try:
        plugins.add_user_folder("models", config["model_folder"])
    except Error as error:
        looked = own_code.search_hint(config["model_folder"])
        raise ConfigError(f"model_folder: {error}{looked}") from None
    try:
        plugins.set_user_names("datasets", "images", config["data"]["images"])
    except Error as error:
        raise ConfigError(f"data.images.{error}") from None
    try:
        other_trainers.register(config["trainers"], _parameters_in(config["matrix"]))
    except Error as error:
        raise ConfigError(str(error)) from None


def _parameters_in(matrix_blocks: list[dict[str, Any]]) -> Iterator[str]:
    """The names of the parameters that blocks give, as do entries of their `include`."""
    for block in matrix_blocks:
        for part in (block, *block.get("include", ())):
            yield from part.get("parameters", {})
