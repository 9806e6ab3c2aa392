"""Images: the source of each, its identity and digest, and its form for each runtime.

- An image is made once: built, pulled, or used where it is. Its digest is that of its manifest, or
  the SHA-256 of a SIF file or of a root folder's content.
- All runtimes run the same content: each form is converted from this one image.
- Each form contains our marker file with the image's identity. dlbench prepare-image reads it from
  inside when it makes the form, and so does every trainer.
- dlbench make-image makes images, dlbench prepare-image their forms.

results/images/{name}/ holds image.json, and {form}.json and {form}/ for each runtime.

Some environments need a newer driver of NVIDIA's than a node has: others that do instead are named.
The CUDA of an environment is that of the wheels in its lock file. Modules and conda bring their
own, of which nothing is known here.
"""

import contextlib
import functools
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench import Error
from dlbench.common import files as common_files
from dlbench.common import options, own_code, plugins, tools
from dlbench.common.files import sha256, write_json
from dlbench.images import oci
from dlbench.images.runtimes import IMAGES, MARKER, Image
from dlbench.machine import gpus, redaction
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

if TYPE_CHECKING:  # study.config imports more than the standard library
    from dlbench.study.config import Study

DEFAULTS: dict[str, Any] = {
    "source": None,
    "digest": None,
    "base": None,
    "python": "python3",
    "binds": [],
    "build_binds": [],
}
REGISTRY = "docker://"
# A root folder has one of these; an image layout has none.
ROOT_FOLDERS = ("bin", "etc", "usr")


class Unusable(Error):
    """A run cannot use an image here: the image could not be made, or it lacks a package."""


def settings(name: str, images: Mapping[str, Any]) -> dict[str, Any]:
    """An image's entry in the config, with defaults. `images`: the config's `images`."""
    entry = {**DEFAULTS, **images.get(name, {})}
    return {**entry, "source": entry["source"] or str(trainer_environments.folder(name))}


def origin(settings: Mapping[str, Any]) -> str:
    """The kind of an image's source: registry, recipe, sif, folder or archive.

    Raises Error: the source is none of these.
    """
    source = settings["source"]
    if source.startswith(REGISTRY):
        return "registry"
    path = Path(source)
    if (path / "uv.lock").is_file():
        return "recipe"
    if any((path / name).is_dir() for name in ROOT_FOLDERS):
        return "folder"
    if (path / "oci-layout").is_file() or (path / "manifest.json").is_file():
        return "archive"  # unpacked
    if path.is_file():
        with open(path, "rb") as file:
            # SIF files begin with a launch line; the magic word follows.
            return "sif" if b"SIF_MAGIC" in file.read(64) else "archive"
    raise Error(
        f"images: source {source}: expected a SIF file, a root folder, an image archive, an OCI "
        f"layout, a folder with uv.lock, or {REGISTRY}NAME; found "
        f"{'a folder that is none of these' if path.is_dir() else 'nothing'}"
    )


def identity(name: str, settings: Mapping[str, Any]) -> str | None:
    """Text that identifies the source from which an image is made.

    A digest of the recipe, a reference with its pinned digest, or the digest of a file or folder. A
    file or folder is read again only if its sizes or times changed since the image was made.
    Returns None if the source is not on this machine, e.g. in a copy of the results.
    """
    try:
        kind = origin(settings)
    except Error:
        return None
    if kind == "registry":
        return f"{settings['source']}@{settings['digest'] or 'any'}"
    if kind == "recipe":
        folder = Path(settings["source"])
        recipes_folder = own_code.project_path(trainer_environments.ENVIRONMENTS)
        recipes = [recipes_folder / "Containerfile", recipes_folder / "apptainer.def"]
        parts = [base(settings), *map(sha256, recipes), trainer_environments.lock_digest(folder)]
        return f"sha256:{hashlib.sha256(' '.join(parts).encode()).hexdigest()}"
    description = _description(image_path(name))
    if description and description["state"] == oci.stat_signature(settings["source"]):
        return description["identity"]
    return oci.content_digest(settings["source"])


def source_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine an image's content."""
    return {key: settings[key] for key in ("source", "base", "digest")}


def check_source(name: str, study: "Study") -> None:
    """Check that no other study made a different image of this name.

    Runs name their image: if two studies gave different images the same name, each would make the
    image again, and train the runs that they share again. Raises Error: another study made a
    different image of this name.
    """
    entry = settings(name, study.images)
    description = _description(image_path(name)) or {}
    if description.get("study") not in (None, study.name) and description[
        "asked"
    ] != source_settings(entry):
        raise Error(
            f"images: the name {name} is taken: study {description['study']!r} made an image of "
            f"this name from {description['asked']['source']}, this study from {entry['source']}. "
            f"Give yours another name, under images and as environment in the matrix; or delete "
            f"{IMAGES / name}, if that study is over"
        )


def digest(name: str, settings: Mapping[str, Any]) -> str | None:
    """The digest of an image; None if it is not made yet, or was made from another source."""
    return identity_and_digest(name, settings)[1]


def identity_and_digest(name: str, settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(identity, digest) of an image. Reading a large source takes seconds."""
    expected = identity(name, settings)
    description = _description(image_path(name))
    if not description or description["identity"] != expected:
        return expected, None
    matches_pin = settings["digest"] in (None, description["digest"])
    return expected, description["digest"] if matches_pin else None


def base(settings: Mapping[str, Any]) -> str:
    """The base image of a recipe. Raises Error: neither the config nor the recipe names one."""
    if settings["base"]:
        return settings["base"]
    import tomllib  # Python 3.10 lacks it, which may be the Python of an image

    file = Path(settings["source"]) / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text())["tool"]["dlbench"]["image"]["base"]
    except (OSError, ValueError, KeyError) as error:
        raise Error(
            f"{file} has no base in [tool.dlbench.image], and the config none: {error!r}"
        ) from None


def options_of(run: Run) -> dict[str, Any]:
    """The options of a run's runtime, with their values."""
    known = plugins.load("runtimes", run.runtime).OPTIONS
    return options.parse("runtime", run.runtime, known, run.runtime_options)


def form_name(run: Run) -> str:
    """The name of the form that a run needs, e.g. apptainer or udocker-P2."""
    form = getattr(plugins.load("runtimes", run.runtime), "form", None)
    return form(options_of(run)) if form else run.runtime


def image_path(name: str) -> str:
    """The path of an image's description, which make_image.make writes."""
    return f"{IMAGES}/{name}/image.json"


def form_path(run: Run) -> str:
    """The path of the description of a run's form, which prepare_image.prepare writes."""
    return f"{IMAGES}/{run.environment}/{form_name(run)}.json"


def directive_image(run: Run) -> str | None:
    """The image for Snakemake's container directive; None where it could not be made."""
    form = Path(form_path(run))
    if failure(form):
        return None
    return plugins.load("runtimes", run.runtime).directive_image(form.with_suffix(""))


@contextlib.contextmanager
def record_failure(path: str | Path, prefix: str = "") -> Iterator[None]:
    """Write an Error or OSError of the block to the description of an image or a form.

    The workflow then skips the runs that need it, with this reason, and trains all others.
    """
    try:
        yield
    except (Error, OSError) as error:
        reason = f"{prefix}{error}"
        print(f"error: {reason}", file=sys.stderr)
        write_json(path, {"failure": redaction.redact(reason)})


def failure(path: str | Path) -> str | None:
    """Why an image or a form could not be made, as `record_failure` wrote it, or None."""
    return (common_files.read_json(path) or {}).get("failure")


def read(path: str | Path) -> Image:
    """The Image that image.json describes.

    Raises:
        Error: the file or the marker is missing or damaged.
        Unusable: the image could not be made.
    """
    description = read_form(path)
    keys = ("name", "kind", "digest", "image_id", "marked", "environment")
    image = Image(**{key: description[key] for key in keys}, path=Path(description["path"]))
    if not (image.marker / MARKER).is_file():
        raise Error(
            f"{image.marker / MARKER} is missing: an earlier version made the image, or files of "
            f"it were deleted; delete {IMAGES / image.name}, so that it is made again"
        )
    return image


def read_form(path: str | Path) -> dict[str, Any]:
    """The description of a form, which prepare_image.prepare wrote.

    Raises Error: it is missing or damaged; Unusable: the form could not be made.
    """
    form = common_files.read_json(path)
    if not form:
        raise Error(f"{path} is missing or damaged: make the image again (target images)")
    if "failure" in form:
        raise Unusable(form["failure"])
    return form


def digest_of_form(path: str | Path) -> str | None:
    """The digest of a form's image, also if the form could not be made; None if it is unknown."""
    return (_description(Path(path).with_name("image.json")) or {}).get("digest")


def _description(path):
    """The description of an image or a form; None if it is missing or has a failure."""
    content = common_files.read_json(path)
    return None if content and "failure" in content else content


def check_packages(run: Run, form: dict[str, Any]) -> None:
    """Check that an image has the framework of a run, and the packages that it needs beside it.

    Raises Unusable: one is missing.
    """
    if run.is_external:
        return  # another program trains, and checks its packages itself
    needed = (
        *engine.packages(run.framework),
        *engine.strategy_of(run).packages,
        *inputs.packages(run),
    )
    for package in needed:
        if not form["packages"].get(package, "not listed"):  # older descriptions list fewer
            raise Unusable(f"{package} is not in the image {form['image']} ({form['digest']})")


def unsupported(run: Run, images: Mapping[str, Any]) -> str | None:
    """Why a run in a container cannot start here, as far as is known in advance, or None.

    `images`: the config's `images`.
    """
    module = plugins.load("runtimes", run.runtime)
    if run.nodes > 1 and options_of(run).get("start") == "directive":
        return f"start: directive enters an image on one node only; the run has {run.nodes} nodes"
    fitting = getattr(module, "LAUNCHERS", ())
    bound_outside = run.is_external or run.copies_per_node > 1
    if fitting and (run.launcher not in fitting or bound_outside):
        return (
            f"runtime {run.runtime} needs launcher {' or '.join(fitting)}, and dlbench's own "
            f"trainer in one copy; found launcher {run.launcher}: choose runtime enroot"
        )
    missing = tools.missing_program(module.PROGRAMS)
    if missing:
        return f"runtime {run.runtime} is not installed: {missing}"
    try:
        origin(settings(run.environment, images))
    except Error as error:
        return str(error)
    form = _description(form_path(run))
    if not form:
        return None
    try:
        check_packages(run, form)
    except Unusable as error:
        # If the image is about to be made again, the new one may have the package.
        current_digest = digest(run.environment, settings(run.environment, images))
        return str(error) if current_digest == form["digest"] else None
    return None


RUNTIME = re.compile(
    rf'^name = "(?:{"|".join(gpus.CUDA_PACKAGES)})"\nversion = "(.+)"', re.MULTILINE
)


class Misfit(NamedTuple):
    """An environment that needs a newer driver.

    `reason`: a clause with both versions; `remedy`: what to do, a clause.
    """

    environment: str
    reason: str
    remedy: str


def misfits(environments: Iterable[str], driver: str) -> Iterator[Misfit]:
    """Yield a Misfit for each environment whose CUDA needs a newer driver.

    Args:
        environments: names of folders in envs/; others are passed over, as those of images.
        driver: the version that a node has.
    """
    for environment in sorted(set(environments)):
        cuda = cuda_of(environment)
        if needed := cuda and gpus.newer_driver(cuda, driver):
            reason = f"has CUDA {cuda}, which needs driver {needed} or newer, and there is {driver}"
            yield Misfit(environment, reason, _remedy(environment, driver))


def cuda_of(environment: str) -> str | None:
    """The version of CUDA in an environment's lock file; None if it has none."""
    return _cuda_of(trainer_environments.folder(environment).absolute())


@functools.cache
def _cuda_of(folder: Path) -> str | None:
    try:
        found = RUNTIME.search((folder / "uv.lock").read_text(encoding="utf-8"))
    except OSError:
        return None
    return found and found[1]


def _remedy(environment, driver):
    """What to do: an environment with an older CUDA for the same frameworks, or another driver."""
    frameworks = trainer_environments.frameworks_in(environment)
    variants = [
        other
        for other in trainer_environments.environments()
        if frameworks
        and trainer_environments.frameworks_in(other) == frameworks
        # Those of other programs have their packages beside the framework.
        and other.partition("-")[0] == environment.partition("-")[0]
        and (cuda := cuda_of(other))
        and not gpus.newer_driver(cuda, driver)
    ]
    if not variants:
        return "update the driver: no environment in envs/ has an older CUDA and the same framework"
    name = variants[0]
    made = trainer_environments.is_installed(name)
    make = "" if made else f" ({tools.dlbench_command(f'environment envs/{name}')} makes it)"
    return f"give its runs `environment: {name}`{make}, or update the driver"
