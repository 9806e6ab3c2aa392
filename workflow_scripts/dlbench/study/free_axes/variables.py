"""Variables of the environment of a run, and options of its launcher: what a config may set, and
their text in a run.
"""

from collections.abc import Mapping
from typing import Any

from dlbench import Error
from dlbench.common import assignments, plugins
from dlbench.machine import redaction

# Set by dlbench, or by whatever starts the processes of a run, with a value for each.
_OF_A_PROCESS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TF_CONFIG", "CUDA_DEVICE_ORDER", "KERAS_BACKEND"),
)
_SET = "OPTIONS_SET"  # of a launcher that takes options: those that it sets itself
_PREFIXES = ("DLBENCH_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "TORCHELASTIC_", "SLURM_PROCID")


def canonical_text(values: Mapping[str, Any]) -> str:
    """The text of variables, as in `NCCL_ALGO=Ring`: equal ones have equal texts.

    Raises:
        Error: a name or a value is that of a secret, or a name is set for each process.
    """
    for name, value in values.items():
        check_plain(name, value)
        if name in _OF_A_PROCESS or name.startswith(_PREFIXES) or not _is_shared(name):
            raise Error(
                f"{name} is set for each process of a run by what starts it; it cannot be an axis"
            )
    return assignments.text(values)


def options_text(launcher: str, values: Mapping[str, Any]) -> str:
    """The text of the options of a launcher, as in `mpi=pmix`.

    Raises:
        Error: the launcher takes none, dlbench sets one itself, or one is a secret.
    """
    if not values:
        return ""
    own = plugins.constants("launchers", launcher).get(_SET)
    if own is None:
        taking = [
            n for n in plugins.names("launchers") if _SET in plugins.constants("launchers", n)
        ]
        raise Error(f"launcher {launcher} takes no options; these do: {', '.join(taking)}")
    for name, value in values.items():
        check_plain(name, value)
        if name.replace("_", "-") in own:
            raise Error(f"{name} of launcher {launcher} is set by dlbench; leave it out")
    return assignments.text(values)


def check_plain(name: str, value: Any) -> None:
    """Check that a named value may stand in records and figures.

    Raises:
        Error: it is a secret, or more than one line.
    """
    text = assignments.plain(value)
    (shown,) = redaction.redact_command([f"{name}={text}"])
    if shown != f"{name}={text}" and redaction.is_secret(name):
        raise Error(
            f"{name} is the name of a secret, and this would be in records, tables and archives: "
            "set it where you start dlbench instead"
        )
    if shown != f"{name}={text}":
        raise Error(f"{name}: there is a secret in its value, which would be in records")
    if not text.isprintable():
        raise Error(f"{name}: expected one line of printable characters, found {text!r}")


def _is_shared(name):
    return bool(redaction.shared_variables({name: ""}))
