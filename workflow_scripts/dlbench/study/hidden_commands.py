"""The commands of a config with numbers for their secrets, as they stand in command lines of rules.

Snakemake keeps these lines in its metadata and logs, and everybody on the machine sees them.
"""

from dataclasses import dataclass
from typing import Any

from dlbench.machine import redaction


@dataclass(frozen=True)
class HiddenCommands:
    """Commands of a config without secrets.

    Attributes:
        site: {key of `site`: command, as one text}, of those that are given.
        trainers: {trainer: words}, names in braces not filled in.
        variables: of the environment, from which start_run.py has the secrets.
    """

    site: dict[str, str]
    trainers: dict[str, list[str]]
    variables: dict[str, str]


def hide(config: dict[str, Any]) -> HiddenCommands:
    """Take the secrets out of the commands of a merged config."""
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
