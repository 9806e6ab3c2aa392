"""The flags of train.py: the fields of a run, then paths, devices and monitoring.

The flags of the fields follow from their declarations (dlbench/common/run_fields.py).
"""

import argparse

from dlbench.common import command_line, plugins
from dlbench.common.run_fields import DECLARED, DEFAULTS, FIELDS, LARGEST, value_type
from dlbench.machine import binding
from dlbench.trainer import calibration, engine

OTHERS = "trainer"  # the field that names another program
LENGTHS = ("steps", "epochs")  # one of them is given
PLACES = (
    "log",
    "data",
    "device",
    "site_binding",
    "share_gpus",
    "image_id",
    "model_folder",
    "checkpoint",
    "checkpoint_every_min",
    "sample_every_s",
    "packages",
    "calibrations",
    "calibration_s",
)


def parse(
    description: str | None, arguments: list[str] | None = None
) -> tuple[argparse.Namespace, argparse.Namespace]:
    """The fields of the run, and the flags on which no result depends (PLACES).

    Arguments of None are those of this process.
    """
    program = parser(description)
    spec = program.parse_args(arguments)
    if spec.data is None:
        try:
            plugins.path("datasets", spec.dataset)
        except plugins.UnknownName as error:
            program.error(f"{error}; of others --data names the converted folder")
    spec.environment = spec.environment or engine.environment(spec.framework)
    return spec, argparse.Namespace(**{key: spec.__dict__.pop(key) for key in PLACES})


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """The parser of both groups of flags."""
    program = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_run(program.add_argument_group("the run"))
    _add_places(program.add_argument_group("where and how"))
    return program


def _add_run(run: argparse._ArgumentGroup) -> None:
    length = run.add_mutually_exclusive_group(required=True)
    for name in (name for name in FIELDS if name != OTHERS):
        group = length if name in LENGTHS else run
        group.add_argument(f"--{name.replace('_', '-')}", **_flag(name))


def _flag(name):
    """The arguments of add_argument for the flag of a field, from its declaration."""
    field, declared = FIELDS[name], DECLARED[name]
    kind = value_type(field)
    recorded = "; recorded only" * declared.only_recorded
    how = {"help": declared.meaning.removesuffix(".").replace("%", "%%") + recorded}
    if name not in DEFAULTS:
        how["required"] = True
    elif name != "environment":  # whose default is that of the framework
        how["default"] = field.default
    if name == "framework":
        return {**how, "choices": engine.names()}
    if declared.choices:
        return {**how, "choices": declared.choices}
    if declared.folder == "strategies":
        return {**how, "choices": _names(declared.folder)}
    if declared.folder == "models":  # without choices: --model-folder may add models
        return {**how, "metavar": "M", "help": ", ".join(_names(declared.folder))}
    if declared.folder == "datasets":  # a config may name further ones, which --data holds
        return {**how, "metavar": "D", "help": ", ".join(plugins.names(declared.folder))}
    if declared.folder:
        names = ", ".join(plugins.names(declared.folder))
        return {**how, "type": command_line.name_of(declared.folder), "metavar": "X", "help": names}
    if kind is bool:
        return {**how, "type": _boolean, "metavar": "True|False"}
    if kind is int:
        most = LARGEST[int] if declared.maximum is None else declared.maximum
        return {**how, "type": command_line.whole(declared.minimum or 0, most), "metavar": "N"}
    if kind is float:
        bounds = declared.minimum, declared.above, declared.maximum
        return {**how, "type": command_line.real(*bounds), "metavar": "X"}
    if declared.names:
        return {**how, "metavar": "'A=1 B=x'"}
    return {**how, "metavar": "A=1,B=x" if declared.is_mapping else "NAME"}


def _add_places(where: argparse._ArgumentGroup) -> None:
    where.add_argument("--log", required=True, help="event log; must not hold a run already")
    where.add_argument("--data", help="folder of the converted dataset, unless it is synthetic")
    where.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    where.add_argument(
        "--site-binding",
        default=binding.AUTO,
        choices=binding.MODES,
        help="of processes to cores; auto: near their GPUs; cores: in the order of their numbers",
    )
    where.add_argument(
        "--share-gpus", action="store_true", help="let several processes compute on one GPU"
    )
    where.add_argument("--image-id", help="id of the run's image, as its marker file has it")
    where.add_argument("--model-folder", help="folder with a file of your own for --model")
    where.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="write checkpoints here, also on SIGTERM and SIGUSR1, and resume from the newest one",
    )
    where.add_argument(
        "--checkpoint-every-min", type=command_line.real(above=0), default=10.0, metavar="MINUTES"
    )
    where.add_argument(
        "--sample-every-s",
        type=command_line.real(0),
        default=1.0,
        metavar="SECONDS",
        help="sample CPU, memory and GPUs; 0: never",
    )
    where.add_argument(
        "--packages", metavar="FOLDER", help="save the list of installed packages here"
    )
    where.add_argument(
        "--calibrations",
        metavar="FOLDER",
        help="measure the rates of a device of no known peak, once for each kind; save them here",
    )
    where.add_argument(
        "--calibration-s",
        type=command_line.real(above=0),
        default=calibration.SECONDS,
        metavar="SECONDS",
        help="duration of that measurement; disturbances of some seconds spoil a shorter one",
    )


def _names(kind: str) -> list[str]:
    """The names of a kind over all frameworks."""
    return sorted(
        {n for name in engine.names() for n in plugins.names(engine.plugin_kind(name, kind))}
    )


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"expected True or False, found {text}")
    return text == "True"
