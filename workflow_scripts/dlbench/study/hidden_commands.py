"""The commands of a config with numbers instead of secrets, for the command lines of rules.

Snakemake stores these lines in its metadata and logs, and all users of the machine can see them.
"""

from dataclasses import dataclass
from typing import Any

from dlbench.machine import redaction


@dataclass(frozen=True)
class HiddenCommands:
    """Commands of a config without secrets.

    Attributes:
        site: {key of `site`: command as one text}, for the commands in the config.
        trainers: {trainer: command as a list}, with its placeholders.
        variables: environment variables with the secrets, for start_run.py.
    """

    site: dict[str, str]
    trainers: dict[str, list[str]]
    variables: dict[str, str]


def hide(config: dict[str, Any]) -> HiddenCommands:
    """Replace the secrets in the commands of a merged config."""
    secrets = redaction.Secrets()
    given = {key: config["site"].get(key) for key in ("power_meter", "power_limit_command")}
    return HiddenCommands(
        site={key: secrets.take_out(text) for key, text in given.items() if text},
        trainers={
            name: secrets.take_out_of_template(entry["command"])
            for name, entry in config["trainers"].items()
        },
        variables=secrets.variables,
    )
