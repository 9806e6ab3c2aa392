"""Convert images to the forms that runtimes need, and check each form from inside."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import options, own_code, plugins, tools
from dlbench.common.files import make_empty_folder, write_json
from dlbench.images.runtimes import HOST_ONLY, MARKER, Container, Image
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

DESCRIBE = "workflow_scripts/describe_image.py"
# What our trainer needs besides a framework; "" stands for any version.
LOWEST_VERSIONS = {"Python": "3.10", "keras": "3", "numpy": ""}


def prepare(
    image: Image,
    runtime: str,
    runtime_options: dict[str, Any],
    python: str,
    gpus: bool,
    output: str | Path,
    any_packages: bool = False,
) -> None:
    """Convert an image to the form that a runtime needs, check it from inside, and describe it.

    Args:
        python: name or path of the interpreter in the image.
        gpus: whether runs use GPUs.
        output: JSON file with the description of the form. The form itself is beside it, in a
            folder of the same name without suffix.
        any_packages: skip the check of packages, because another program than our trainer runs.

    Raises:
        Error: a program is missing, the conversion fails, a process started in the form is not
            inside the image, or a package is missing that every run needs.
    """
    module = plugins.load("runtimes", runtime)
    chosen = options.parse("runtime", runtime, module.OPTIONS, "") | runtime_options
    output = Path(output)
    form_folder = output.with_suffix("")
    where = f"image {image.name} under {runtime}"
    missing = tools.missing_program(module.PROGRAMS)
    if missing:
        raise Error(f"{where}: {missing}")
    make_empty_folder(form_folder)
    try:
        for command in module.prepare(image, form_folder, chosen, gpus):
            tools.run(command)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    container = Container(
        image=module.prepared(image, form_folder, chosen),
        folder=os.getcwd(),
        options=chosen,
        gpus=gpus,
        environment=image.environment,
        name=f"describe-{image.name}",
    )
    describe = [python, str(own_code.project_path(DESCRIBE)), *_modules()]
    inside = _describe(module.command(container, describe), where, runtime)
    _check_marker(inside, image, where)
    if not any_packages:
        _check_packages(inside, where)
    write_json(
        output,
        {
            "image": image.name,
            "digest": image.digest,
            "image_id": image.image_id,
            "runtime": runtime,
            "runtime_version": _version(module),
            "options": chosen,
            "prepared": container.image,
            "environment": image.environment,
            **{key: value for key, value in inside.items() if key != "marker"},
        },
    )


def _modules():
    """The modules that the trainer, or any framework, strategy or reader, imports."""
    modules = {"numpy", "psutil"}.union(*inputs.PACKAGES.values())
    for framework in engine.names():
        kind = engine.plugin_kind(framework, "strategies")
        strategies = (plugins.load(kind, name).Strategy for name in plugins.names(kind))
        modules.update(engine.packages(framework), *(strategy.packages for strategy in strategies))
    return sorted(modules)


def _describe(command, where, runtime):
    """Run describe_image.py in the image. Returns what it prints, parsed."""
    # Without the variables about this machine's programs, which would hide the image's.
    hidden = (*HOST_ONLY, "LD_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    with contextlib.suppress(IndexError, ValueError):
        if finished.returncode == 0:
            return json.loads(finished.stdout.strip().splitlines()[-1])
    reason = tools.failure_reason(finished.stdout + finished.stderr)
    hint = "is there a python3 in it? (images: python names another)"
    if runtime in reason.lower() and "python" not in reason.lower():
        hint = f"is {runtime} installed here with all its tools? (docs/containers.md)"
    raise Error(
        f"{where}: Python could not be started inside "
        f"(exit code {finished.returncode}): {reason}; {hint}"
    )


def _check_marker(inside, image, where):
    """Check that describe_image.py ran inside the image. Raises Error: it ran elsewhere."""
    if not inside["marker"]:
        raise Error(
            f"{where}: /{MARKER} is missing inside: the process was not in the image, but saw the "
            "files of this machine"
        )
    if inside["marker"].get("image_id") != image.image_id:
        raise Error(
            f"{where}: expected the image {image.image_id}, the process was in "
            f"{inside['marker'].get('image_id')}"
        )


def _check_packages(inside, where):
    """Check that the image has what every run needs: LOWEST_VERSIONS and some framework.

    Raises Error: something is missing or too old.
    """
    needed = {packages[0]: packages for packages in map(engine.packages, engine.names())}
    installed = [packages for name, packages in needed.items() if inside["packages"][name]]
    if not installed:
        names = " nor ".join(needed)
        raise Error(f"{where}: neither {names} is installed for {inside['python']}")
    for name, lowest in LOWEST_VERSIONS.items():
        version = inside["python_version"] if name == "Python" else inside["packages"][name]
        if not version and not all(name in ("numpy", *packages) for packages in installed):
            continue  # not every installed framework needs it
        if not version:
            raise Error(f"{where}: {name} is not installed for {inside['python']}")
        # An unknown version passes: the builds of some sites state none.
        if (parsed := _parse_version(version)) and parsed < _parse_version(lowest):
            raise Error(f"{where}: needs {name} {lowest} or newer, has {version}")


def _parse_version(version):
    """A version as a tuple of numbers, for comparisons; () if it is unknown.

    >>> _parse_version("3.9.18+cu12"), _parse_version("unknown")
    ((3, 9, 18), ())
    """
    return tuple(map(int, re.findall(r"\d+", re.match(r"[\d.]*", version)[0])))


def _version(module):
    """The first line that the runtime's version command prints."""
    version = getattr(module, "version", lambda: [module.PROGRAMS[0], "--version"])
    finished = subprocess.run(version(), capture_output=True, text=True, check=False)
    return next(iter((finished.stdout + finished.stderr).splitlines()), "unknown").strip()
