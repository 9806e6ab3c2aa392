"""Images: the source of each, its identity and digest, and the form that each runtime takes.

- An image is made once (built, pulled, or taken where it lies). Its digest is that of its
  manifest, or the SHA-256 of a SIF file or of the listing of a root folder.
- All runtimes get the same content, converted to their forms from this one image.
- Each form carries our marker file with the image's identity. It is read from inside when the
  form is made, and by every trainer.
- make_image.py makes images, prepare_image.py their forms.

results/images/{name}/ has image.json, and {form}.json and {form}/ for each runtime.
"""

import contextlib
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench import Error
from dlbench.common import files as common_files
from dlbench.common import options, own_code, plugins, tools
from dlbench.common.files import sha256, write_json
from dlbench.images import digests
from dlbench.images.image import IMAGES, MARKER, Image
from dlbench.machine import redaction
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

if TYPE_CHECKING:  # it needs more than the standard library
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
# A root folder has one of these, an image layout none.
ROOT_FOLDERS = ("bin", "etc", "usr")


class Unusable(Error):
    """An image that a run cannot use here: it could not be made, or it lacks a package."""


def settings(name: str, images: Mapping[str, Any]) -> dict[str, Any]:
    """The config's entry of an image, with defaults.

    Args:
        images: the config's `images`.
    """
    entry = {**DEFAULTS, **images.get(name, {})}
    return {**entry, "source": entry["source"] or str(trainer_environments.folder(name))}


def origin(settings: Mapping[str, Any]) -> str:
    """The kind of an image's source: registry, recipe, sif, folder or archive.

    Raises:
        Error: the source is none of these.
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
            # SIF files begin with a launch line; then comes this magic word.
            return "sif" if b"SIF_MAGIC" in file.read(64) else "archive"
    raise Error(
        f"images: source {source}: expected a SIF file, a root folder, an image archive, an OCI "
        f"layout, a folder with uv.lock, or {REGISTRY}NAME; found "
        f"{'a folder that is none of these' if path.is_dir() else 'nothing there'}"
    )


def identity(name: str, settings: Mapping[str, Any]) -> str | None:
    """Text that identifies the content from which an image is made.

    A digest of the recipe, a reference with its pinned digest, or the digest of a file's or
    folder's content, which is read again only if it changed since the image was made.

    Returns:
        None if the source is not on this machine, as with a copy of the results.
    """
    try:
        kind = origin(settings)
    except Error:
        return None
    if kind == "registry":
        return f"{settings['source']}@{settings['digest'] or 'any'}"
    if kind == "recipe":
        folder = Path(settings["source"])
        recipes_folder = own_code.here(trainer_environments.ENVIRONMENTS)
        recipes = [recipes_folder / "Containerfile", recipes_folder / "apptainer.def"]
        parts = [base(settings), *map(sha256, recipes), trainer_environments.lock_digest(folder)]
        return f"sha256:{hashlib.sha256(' '.join(parts).encode()).hexdigest()}"
    description = _description(image_path(name))
    if description and description["state"] == digests.stat_signature(settings["source"]):
        return description["identity"]
    return digests.content_digest(settings["source"])


def source_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an image's settings that decides which image it is."""
    return {key: settings[key] for key in ("source", "base", "digest")}


def check_source(name: str, study: "Study") -> None:
    """Check that no other study has another image of this name.

    Runs and images are identified by the name: otherwise each of the two studies would make the
    image again, and train again the runs that both have.

    Raises:
        Error: another study has.
    """
    entry = settings(name, study.images)
    description = _description(image_path(name)) or {}
    if description.get("study") not in (None, study.name) and description[
        "asked"
    ] != source_settings(entry):
        raise Error(
            f"images: {name} is another image already: study {description['study']!r} made it from "
            f"{description['asked']['source']}, this one asks for {entry['source']}. Give yours "
            f"another name, under images and as environment in the matrix; or delete "
            f"{IMAGES / name}, if that study is over"
        )


def digest(name: str, settings: Mapping[str, Any]) -> str | None:
    """The digest of an image; None if it is not made yet, or made from another source."""
    return identity_and_digest(name, settings)[1]


def identity_and_digest(name: str, settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(identity, digest) of an image; large sources take seconds to read."""
    expected = identity(name, settings)
    description = _description(image_path(name))
    if not description or description["identity"] != expected:
        return expected, None
    matches_pin = settings["digest"] in (None, description["digest"])
    return expected, description["digest"] if matches_pin else None


def base(settings: Mapping[str, Any]) -> str:
    """The image that a recipe starts from.

    Raises:
        Error: neither the config nor the recipe names one.
    """
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
    """The name of the form that a run takes, e.g. apptainer or udocker-P2."""
    return plugins.load("runtimes", run.runtime).form(options_of(run))


def image_path(name: str) -> str:
    """The path of an image's description, which make_image.make writes."""
    return f"{IMAGES}/{name}/image.json"


def form_path(run: Run) -> str:
    """The path of the description of the form that a run takes, by prepare_image.prepare."""
    return f"{IMAGES}/{run.environment}/{form_name(run)}.json"


def directive_image(run: Run) -> str | None:
    """The image for Snakemake's container directive; None where it could not be made."""
    form = Path(form_path(run))
    if failure(form):
        return None
    return plugins.load("runtimes", run.runtime).directive_image(form.with_suffix(""))


@contextlib.contextmanager
def record_failure(path: str | Path, prefix: str = "") -> Iterator[None]:
    """Write an Error or OSError of this block to the description of an image or a form.

    Runs that need it are then skipped with this reason; all others go on.
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
            f"{image.marker / MARKER} is missing: an earlier version made the image, or part of it "
            f"is gone; delete {IMAGES / image.name}, so that it is made again"
        )
    return image


def read_form(path: str | Path) -> dict[str, Any]:
    """The description of a form, which prepare_image.prepare wrote.

    Raises:
        Error: it is missing or damaged.
        Unusable: the form could not be made.
    """
    form = common_files.read_json(path)
    if not form:
        raise Error(f"{path} is missing or damaged: make the image again (target images)")
    if "failure" in form:
        raise Unusable(form["failure"])
    return form


def digest_of_form(path: str | Path) -> str | None:
    """The digest of the image of a form, also if the form could not be made, or None."""
    return (_description(Path(path).with_name("image.json")) or {}).get("digest")


def _description(path):
    """The description of an image or a form; None if it is missing or has a failure."""
    content = common_files.read_json(path)
    return None if content and "failure" in content else content


def check_packages(run: Run, form: dict[str, Any]) -> None:
    """Check that an image has the framework of a run, and the packages that it needs beside it.

    Raises:
        Unusable: one is missing.
    """
    if run.is_external:
        return  # the program of others checks its own packages
    needed = (
        *engine.packages(run.framework),
        *engine.strategy_of(run).packages,
        *inputs.packages(run),
    )
    for package in needed:
        if not form["packages"].get(package, "not looked for"):  # as in older descriptions
            raise Unusable(f"{package} is not in the image {form['image']} ({form['digest']})")


def unsupported(run: Run, images: Mapping[str, Any]) -> str | None:
    """Why a run in a container cannot start here, as far as is known in advance, or None.

    Args:
        images: the config's `images`.
    """
    module = plugins.load("runtimes", run.runtime)
    if run.nodes > 1 and options_of(run).get("start") == "directive":
        return f"start: directive enters an image on one node only, not on {run.nodes}"
    missing = tools.missing(module.PROGRAMS)
    if missing:
        return f"runtime {run.runtime}: {missing}"
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
        # An image that is to be made again may have the package.
        current_digest = digest(run.environment, settings(run.environment, images))
        return str(error) if current_digest == form["digest"] else None
    return None
