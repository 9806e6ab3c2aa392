"""The config's imports, for the rule that reads them."""

import json
import shlex
from typing import Any

from dlbench.common import files
from dlbench.study import config


def names(study: config.Study) -> list[str]:
    return [entry["name"] for entry in study.imports]


def inputs(study: config.Study, name: str) -> list[str]:
    """The files that an import reads, as inputs of its rule.

    Files with braces in their paths are left out, since Snakemake would take these for wildcards.
    They are read too, but a change to them alone is not noticed.
    """
    below = files.files_below(_entry(study, name)["path"])
    return sorted(path for path in map(str, below) if not set("{}") & set(path))


def flags(study: config.Study, name: str) -> str:
    """The arguments of `dlbench import` without its outputs, quoted for the shell."""
    entry = _entry(study, name)
    arguments = [entry["path"], f"--name={name}"]
    arguments += [f"--kind={entry['kind']}"] if "kind" in entry else []
    arguments += [f"--fields={json.dumps(entry['fields'])}"] if "fields" in entry else []
    arguments += [f"--path-fields={entry['path_fields']}"] if "path_fields" in entry else []
    return shlex.join(arguments)


def _entry(study, name) -> dict[str, Any]:
    return next(entry for entry in study.imports if entry["name"] == name)
