"""Images in the forms that runtimes take, each looked at from inside."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

from dlbench import Error
from dlbench.common import options, plugins, tools
from dlbench.common.files import make_empty_folder, write_json
from dlbench.images.runtimes import KEPT_OUT, Container
from dlbench.images.trainer_image import MARKER

DESCRIBE = "workflow_scripts/describe_image.py"
# What our trainer needs, at least of this version.
NEEDED = {"Python": "3.10", "tensorflow": "", "keras": "3", "numpy": ""}


def prepare(image, runtime, chosen, python, gpus, output, any_packages=False):
    """Bring an image to the form that a runtime takes, look at it from inside, and say so.

    Args:
        image: the Image.
        chosen: the runtime's options with their values.
        python: the interpreter inside, a name or a path.
        output: path of the JSON file; what is made lies beside it, in a folder without suffix.
        any_packages: it is for other programs than our trainer, which know what they need.

    Raises:
        Error: a program is missing, the form cannot be made, what runs in it is not inside
            the image, or it lacks what every run needs.
    """
    module = plugins.load("runtimes", runtime)
    chosen = options.parse("runtime", runtime, module.OPTIONS, "") | chosen
    output = Path(output)
    place = output.with_suffix("")
    where = f"image {image.name} under {runtime}"
    missing = tools.missing(module.PROGRAMS)
    if missing:
        raise Error(f"{where}: {missing}")
    make_empty_folder(place)
    try:
        for command in module.prepare(image, place, chosen, gpus):
            tools.run(command)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    started = Container(
        image=module.prepared(image, place, chosen),
        folder=os.getcwd(),
        options=chosen,
        gpus=gpus,
        environment=image.environment,
        name=f"describe-{image.name}",
    )
    inside = _describe(module.command(started, [python, DESCRIBE]), where)
    _check(inside, image, where)
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
            "prepared": started.image,
            "environment": image.environment,
            **{key: value for key, value in inside.items() if key != "marker"},
        },
    )


def _describe(command, where):
    """What describe_image.py says inside."""
    # Without what this machine says of its own programs: what is seen is the image's.
    hidden = (*KEPT_OUT, "LD_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    with contextlib.suppress(IndexError, ValueError):
        if finished.returncode == 0:
            return json.loads(finished.stdout.strip().splitlines()[-1])
    said = tools.failure_reason(finished.stdout + finished.stderr)
    python = "is there a python3 in it? (images: python names another)"
    raise Error(
        f"{where}: Python could not be started inside "
        f"(exit code {finished.returncode}); it said: {said}; {python}"
    )


def _check(inside, image, where):
    """See that it is the image."""
    if not inside["marker"]:
        raise Error(
            f"{where}: /{MARKER} is not seen from inside: what runs there is not in the image, "
            "but on the files of this machine"
        )
    if inside["marker"].get("image_id") != image.image_id:
        raise Error(
            f"{where}: expected the image {image.image_id}, found itself in "
            f"{inside['marker'].get('image_id')}"
        )


def _check_packages(inside, where):
    """See that our trainer can use it."""
    for name, least in NEEDED.items():
        found = inside["python_version"] if name == "Python" else inside["packages"][name]
        if not found:
            raise Error(f"{where}: {name} is not installed for {inside['python']}")
        # What says no version is believed: some sites' builds do not.
        if (version := _numbers(found)) and version < _numbers(least):
            raise Error(f"{where}: needs {name} {least} or newer, has {found}")


def _numbers(version):
    """
    >>> _numbers("3.9.18+cu12"), _numbers("unknown")
    ((3, 9, 18), ())
    """
    return tuple(map(int, re.findall(r"\d+", re.match(r"[\d.]*", version)[0])))


def _version(module):
    """What a runtime says when it is asked for its version: its first line."""
    said = subprocess.run(module.version(), capture_output=True, text=True, check=False)
    return next(iter((said.stdout + said.stderr).splitlines()), "unknown").strip()
