"""Make an image, or an environment: build it, pull it, or use the user's where it is.

- A trainer's pinned environment is installed with uv, and its packages are listed.
- Images are converted to the forms that runtimes need, and each form is checked from inside.
- Images that could not be made or prepared are reported.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files, options, own_code, plugins, tools
from dlbench.common.files import make_empty_folder, sha256, write_json
from dlbench.images import oci, trainer_image
from dlbench.images.runtimes import APPTAINER, HOST_ONLY, MARKER, TAG, Container, Image, apptainer
from dlbench.images.trainer_image import REGISTRY
from dlbench.study import trainer_environments
from dlbench.study.trainer_environments import ENVIRONMENTS
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

ENGINES = ("buildah", "podman", "docker")
# Variables that an image sets: the host's values must not replace them.
VARIABLES = ("LD_LIBRARY_PATH", "OPAL_PREFIX", "PATH", "PMIX_INSTALL_PREFIX", "PYTHONPATH")


def make(name: str, settings: dict[str, Any], output: str | Path, study: str | None = None) -> None:
    """Build an image, pull it, or use it where it is; describe it in image.json.

    Args:
        settings: the image's entry in the config (trainer_image.settings).
        output: path of image.json; the image lies in the same folder.
        study: name of the study that needs it.

    Raises:
        Error: the image cannot be made, or its digest is not the pinned one.
    """
    output = Path(output)
    output_folder = output.parent
    output_folder.mkdir(parents=True, exist_ok=True)
    kind = trainer_image.origin(settings)
    image = {
        "registry": _pull,
        "recipe": _build,
        "archive": _unpack,
        "sif": _take,
        "folder": _take,
    }[kind](name, settings, output_folder)
    if settings["digest"] not in (None, image["digest"]):
        raise Error(
            f"image {name}: expected the pinned digest {settings['digest']}, found "
            f"{image['digest']} at {settings['source']}: the image was replaced, or the pin is old"
        )
    marker = {"image_id": image.pop("image_id", None) or image["digest"], "image": name}
    text = json.dumps(marker).encode() + b"\n"
    target = output_folder / "marker" / MARKER
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    for path in (target, *list(target.parents)[:2]):  # they replace the image's, with their modes
        path.chmod(0o644 if path == target else 0o755)
    if image["kind"] == "oci":
        oci.add_file(image["path"], MARKER, text)
        image["marked"] = True
    write_json(
        output,
        {
            "name": name,
            "study": study,
            "source": settings["source"],
            "asked": trainer_image.source_settings(settings),
            "identity": trainer_image.identity(name, settings),
            "state": None
            if kind in ("registry", "recipe")
            else oci.stat_signature(settings["source"]),
            "image_id": marker["image_id"],
            "environment": _environment_in(image["path"], image["kind"]),
            **image,
        },
    )


def _pull(name, settings, output_folder):
    reference = settings["source"].removeprefix(REGISTRY)
    if settings["digest"] and "@" not in reference:
        reference = f"{_untagged(reference)}@{settings['digest']}"
    layout = make_empty_folder(output_folder / "oci")
    pinned = reference.partition("@")[2] or None
    if shutil.which("skopeo"):
        if not pinned:
            inspect = ["skopeo", "inspect", "--format={{.Digest}}", REGISTRY + reference]
            pinned = tools.run(inspect).splitlines()[-1]
            reference = f"{_untagged(reference)}@{pinned}"
        tools.run(["skopeo", "copy", REGISTRY + reference, f"oci:{layout}:{TAG}"])
    elif engine := tools.first_installed(ENGINES):
        tools.run([engine, "pull", reference])
        _push(engine, reference, layout, output_folder)
    else:
        return _pull_as_sif(settings, reference, output_folder)
    oci.read_image(layout)
    return {"kind": "oci", "path": str(layout), "digest": pinned or oci.read_image(layout)[0]}


def _pull_as_sif(settings, reference, output_folder):
    """Pull with Apptainer, which makes a SIF file: no tool for OCI images is installed."""
    if not tools.first_installed(APPTAINER):
        raise Error(
            f"{settings['source']} cannot be pulled: install one of skopeo, {', '.join(ENGINES)} "
            f"and {' or '.join(APPTAINER)}; none is on the PATH of this machine"
        )
    sif = output_folder / "pulled.sif"
    tools.run([*apptainer.build_command(), sif, REGISTRY + reference])
    digest = reference.partition("@")[2] or f"sha256:{sha256(sif)}"
    return {"kind": "sif", "path": str(sif), "digest": digest, "marked": False}


def _build(name, settings, output_folder):
    """Build the image of an environment in envs/: as OCI by an engine, else as SIF by Apptainer."""
    folder, start = Path(settings["source"]), trainer_image.base(settings)
    image_id = f"build-{uuid.uuid4()}"
    arguments = {"ENVIRONMENT": name, "IMAGE_ID": image_id}
    engine = tools.first_installed(ENGINES)
    if engine:
        layout = make_empty_folder(output_folder / "oci")
        local = f"localhost/dlbench/build-{name.lower()}"
        reference = f"oci-archive:{Path(start).absolute()}" if Path(start).is_file() else start
        arguments["BASE"] = reference
        build_arguments = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        recipe = f"--file={own_code.project_path(ENVIRONMENTS / 'Containerfile')}"
        binds = [f"--volume={bind}" for bind in settings["build_binds"]]
        tools.run(
            [engine, "build", *binds, *build_arguments, recipe, f"--tag={local}", str(folder)]
        )
        _push(engine, local, layout, output_folder)
        tools.run([engine, "rmi", local])
        digest = oci.read_image(layout)[0]
        return {"kind": "oci", "path": str(layout), "digest": digest, "image_id": image_id}
    if not tools.first_installed(APPTAINER):
        raise Error(
            f"image {name} cannot be built: none of {', '.join(ENGINES)} and "
            f"{' or '.join(APPTAINER)} is on the path of this machine; build it elsewhere and give "
            f"it as a file, or name a published one: images: {{{name}: {{source: ...}}}}"
        )
    bootstrap = "oci-archive" if Path(start).is_file() else "docker"
    start = str(Path(start).absolute()) if Path(start).is_file() else start
    arguments |= {"BASE": start.removeprefix("docker.io/"), "BOOTSTRAP": bootstrap}
    build_arguments = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    build_arguments += [f"--bind={bind}" for bind in settings["build_binds"]]
    sif = (output_folder / "built.sif").absolute()
    # The definition copies the lock file from the working folder.
    tools.run([*apptainer.build_command(), *build_arguments, sif, "../apptainer.def"], folder)
    digest = f"sha256:{sha256(sif)}"
    return {
        "kind": "sif",
        "path": str(sif),
        "digest": digest,
        "image_id": image_id,
        "marked": True,
    }


def _unpack(name, settings, output_folder):
    layout = make_empty_folder(output_folder / "oci")
    oci.unpack(settings["source"], layout)
    return {"kind": "oci", "path": str(layout), "digest": oci.read_image(layout)[0]}


def _take(name, settings, output_folder):
    """Describe a SIF file or a root folder of the user, which stays where it is."""
    path = Path(settings["source"]).absolute()
    kind = trainer_image.origin(settings)
    image_id = _image_id_in(path, kind)
    return {
        "kind": kind,
        "path": str(path),
        "digest": oci.content_digest(path),
        "image_id": image_id,
        "marked": image_id is not None,
    }


def _image_id_in(path, kind):
    """The image_id in an image's marker; None if the marker is missing or a symbolic link."""
    if kind == "folder":
        if any((path / part).is_symlink() for part in (MARKER, *Path(MARKER).parents[:-1])):
            return None
        return (files.read_json(path / MARKER) or {}).get("image_id")
    if not tools.first_installed(APPTAINER):
        raise Error(f"{path} is a SIF file; {' or '.join(APPTAINER)} is not on the path")
    script = f"[ -L /{MARKER} ] || [ ! -e /{MARKER} ] || cat /{MARKER}"
    content = _output_in(path, "sh", "-c", script)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return json.loads(content)["image_id"]
    return None


def _environment_in(path, kind):
    """The VARIABLES that an image sets, with their values."""
    if kind == "oci":
        lines = oci.read_image(path)[2].get("config", {}).get("Env") or []
    elif not tools.first_installed(APPTAINER):
        return {}  # a root folder: runtimes without Apptainer do not read its variables either
    else:
        lines = _output_in(path, "env").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: values[name] for name in VARIABLES if values.get(name)}


def _output_in(path, *command):
    """Run a command in an image with Apptainer and return its standard output.

    Raises Error: the command fails.
    """
    enter = [tools.first_installed(APPTAINER), "--silent", "exec", "--cleanenv", path]
    finished = subprocess.run([*enter, *command], capture_output=True, text=True, check=False)
    if finished.returncode:
        raise Error(
            f"{path}: {enter[0]} cannot run {command[0]} in it (exit code {finished.returncode}): "
            f"{tools.failure_reason(finished.stderr + finished.stdout)}"
        )
    return finished.stdout


def _push(engine, reference, layout, output_folder):
    """Copy an image from an engine's store to a layout."""
    if engine == "docker":
        archive = output_folder / "saved.tar"
        tools.run(["docker", "save", f"--output={archive}", reference])
        oci.unpack(archive, layout)
        archive.unlink()
    else:
        tools.run([engine, "push", reference, f"oci:{layout}:{TAG}"])


def _untagged(reference):
    """A reference without tag and digest: tools accept a tag or a digest, not both.

    >>> _untagged("localhost:5000/tensorflow:25.02"), _untagged("a/b@sha256:0")
    ('localhost:5000/tensorflow', 'a/b')
    """
    head, slash, last = reference.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


LIST_PACKAGES = (
    "import importlib.metadata, json, platform;"
    "print(json.dumps({'python': platform.python_version(), 'packages':"
    " {d.metadata['Name']: d.version for d in importlib.metadata.distributions()}}))"
)


def make_environment(
    project: Path,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    output: Path | None = None,
) -> None:
    """Install the environment of a project; packages that the lock file does not name stay.

    Args:
        project: folder with pyproject.toml and uv.lock, or its path in dlbench's own folder.
        extras: optional dependencies to install as well.
        groups: dependency groups to install as well.
        output: JSON file for the list of installed packages; None: no list is written.

    Raises:
        Error: uv could not install it.
    """
    if not (project / "pyproject.toml").is_file():
        project = own_code.project_path(project)
    if project == trainer_environments.folder(project.name):
        folder = trainer_environments.packages_folder(project.name)
    else:
        folder = project / ".venv"
    # VIRTUAL_ENV names the workflow's environment; uv would warn that it is not this project's.
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    environment["UV_PROJECT_ENVIRONMENT"] = str(folder.absolute())
    # The environment's folder may be moved or copied. An older uv warns and ignores the feature.
    environment.setdefault("UV_PREVIEW_FEATURES", "relocatable-envs-default")
    # Another uv may be building Horovod, which takes longer than the five minutes uv would wait.
    environment.setdefault("UV_LOCK_TIMEOUT", "3600")
    # Last on PATH: the Python that runs this program, which may not be on it.
    our_python = str(Path(sys.base_exec_prefix) / "bin")
    environment["PATH"] = os.pathsep.join(filter(None, [environment.get("PATH"), our_python]))
    # Compiled now: where Python cannot write bytecode, each rank would take 3 s more to start.
    command = [tools.find_uv(), "sync", "--project", str(project), "--frozen", "--inexact"]
    command += ["--compile-bytecode"]
    command += [argument for extra in extras for argument in ("--extra", extra)]
    command += [argument for group in groups for argument in ("--group", group)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise Error(f"uv could not install {project}; its messages are above")
    if output:
        listing: list[str | Path] = [folder / "bin/python", "-I", "-c", LIST_PACKAGES]
        finished = subprocess.run(listing, capture_output=True, text=True, check=True)
        installed = json.loads(finished.stdout)
        write_json(output, installed | {"lock_sha256": sha256(project / "uv.lock")})


def check(forms: Iterable[Path]) -> None:
    """Check that all forms of images could be made.

    `forms`: paths of the descriptions that dlbench prepare-image wrote. Raises Error: some could
    not be made; the message has one line for each reason.
    """
    failures = dict.fromkeys(filter(None, map(trainer_image.failure, forms)))
    if failures:
        raise Error("\n".join(failures))


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
