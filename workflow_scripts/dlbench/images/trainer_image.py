"""Images: where each comes from, what is in it, and the form that each runtime takes.

- An image is made once (built, pulled, or taken where it lies) and named by its digest:
  that of its manifest, or the SHA-256 of a SIF file or of the listing of a root folder.
- All runtimes get the same content: what they take is converted from the one image.
- Each form carries our marker file with the image's identity; it is looked at from inside
  when the form is made, and by every trainer.
- make_image.py makes images, prepare_image.py their forms.

results/images/{name}/ has image.json, and {form}.json and {form}/ for each runtime.
"""

import contextlib
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files as common_files
from dlbench.common import options, plugins, tools
from dlbench.common.files import sha256, write_json
from dlbench.images import digests, runtimes
from dlbench.machine import redaction
from dlbench.study import other_trainers

IMAGES = Path("results/images")
RECIPES = Path("envs")
DEFAULTS: dict[str, Any] = {
    "source": None,
    "digest": None,
    "base": None,
    "python": "python3",
    "binds": [],
    "build_binds": [],
}
REGISTRY = "docker://"
MARKER = runtimes.MARKER
# One of these a root folder has, and no image layout.
OF_A_ROOT = ("bin", "etc", "usr")


class Unusable(Error):
    """A run cannot use an image here: it could not be made, or it lacks a package."""


@dataclass(frozen=True)
class Image:
    """An image as it lies here.

    `kind` is oci (a layout), sif or folder. `marked` says whether it carries our marker; the
    folder `marker` has it too, for forms made of images without. `image_id` is what the
    marker says, or is to say. `environment` has those of VARIABLES that the image sets.
    """

    name: str
    kind: str
    path: Path
    digest: str
    image_id: str
    marked: bool
    environment: dict

    @property
    def marker(self):
        # Absolute: tar takes a folder as relative to the one before it.
        return (IMAGES / self.name / "marker").absolute()


def settings(name, images):
    """The config's entry of an image, completed.

    Args:
        images: the config's `images`.
    """
    found = {**DEFAULTS, **images.get(name, {})}
    return {**found, "source": found["source"] or str(RECIPES / name)}


def origin(settings):
    """What a source is: registry, recipe, sif, folder or archive.

    Raises:
        Error: there is no such file or folder.
    """
    source = settings["source"]
    if source.startswith(REGISTRY):
        return "registry"
    path = Path(source)
    if (path / "uv.lock").is_file():
        return "recipe"
    if any((path / name).is_dir() for name in OF_A_ROOT):
        return "folder"
    if (path / "oci-layout").is_file() or (path / "manifest.json").is_file():
        return "archive"  # unpacked
    if path.is_file():
        with open(path, "rb") as file:
            # The magic word of the Singularity image format, after its launch line.
            return "sif" if b"SIF_MAGIC" in file.read(64) else "archive"
    raise Error(
        f"images: source {source}: expected a SIF file, a root folder, an image archive, an OCI "
        f"layout, a folder with uv.lock, or {REGISTRY}NAME; found "
        f"{'a folder that is none of these' if path.is_dir() else 'nothing there'}"
    )


def identity(name, settings):
    """What an image is made from, as text: where it differs the image is another one.

    A digest of the recipe, a name with its pinned digest, or the digest of a file's or folder's
    content, which is read again only where it changed since the image was made.

    Returns:
        None where the source is not here, as in a copy of the results on another machine.
    """
    try:
        kind = origin(settings)
    except Error:
        return None
    if kind == "registry":
        return f"{settings['source']}@{settings['digest'] or 'any'}"
    if kind == "recipe":
        folder = Path(settings["source"])
        files = [RECIPES / "Containerfile", RECIPES / "apptainer.def", folder / "uv.lock"]
        parts = [base(settings), *map(sha256, files)]
        return f"sha256:{hashlib.sha256(' '.join(parts).encode()).hexdigest()}"
    made = _made(image_path(name))
    if made and made["state"] == digests.state_of(settings["source"]):
        return made["identity"]
    return digests.content_digest(settings["source"])


def asked(settings):
    """What in the config's entry of an image says which one it is."""
    return {key: settings[key] for key in ("source", "base", "digest")}


def see_source(name, study):
    """See that there is a source for an image, and that no other study has one of this name.

    Runs and images are known by it: each of the two would make its own anew, and train its runs
    again where they are runs of the other, too.

    Args:
        study: the config.Study.

    Raises:
        Error: there is none, or one has.
    """
    wanted = settings(name, study.images)
    origin(wanted)
    made = _made(image_path(name)) or {}
    if made.get("study") not in (None, study.name) and made["asked"] != asked(wanted):
        raise Error(
            f"images: {name} is another image already: study {made['study']!r} made it from "
            f"{made['asked']['source']}, this one asks for {wanted['source']}. Give yours "
            f"another name, under images and as environment in the matrix; or delete "
            f"{IMAGES / name}, if that study is over"
        )


def digest(name, settings):
    """The digest of an image that is there and is still the one asked for, else None."""
    return known(name, settings)[1]


def known(name, settings):
    """(identity, digest) of an image; finding out may take seconds."""
    wanted = identity(name, settings)
    made = _made(image_path(name))
    if not made or made["identity"] != wanted or settings["digest"] not in (None, made["digest"]):
        return wanted, None
    return wanted, made["digest"]


def base(settings):
    """The image that a recipe starts from."""
    if settings["base"]:
        return settings["base"]
    import tomllib  # an image's Python, where the directive starts a run, may lack it

    file = Path(settings["source"]) / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text())["tool"]["dlbench"]["image"]["base"]
    except (OSError, ValueError, KeyError) as error:
        raise Error(
            f"{file} has no base in [tool.dlbench.image], and the config none: {error!r}"
        ) from None


def options_of(run):
    """The options of a run's runtime, with their values."""
    known = plugins.load("runtimes", run.runtime).OPTIONS
    return options.parse("runtime", run.runtime, known, run.runtime_options)


def form_name(run):
    """The form of an image that a run takes, as in apptainer or udocker-P2."""
    return plugins.load("runtimes", run.runtime).form(options_of(run))


def image_path(name):
    """What `make` writes about an image."""
    return f"{IMAGES}/{name}/image.json"


def form_path(run):
    """What `prepare` writes about the image in the form that a run takes."""
    return f"{IMAGES}/{run.environment}/{form_name(run)}.json"


def directive_image(run):
    """What a run's runtime gives Snakemake's container directive, also before it is made."""
    place = Path(form_path(run)).with_suffix("")
    return Enterable(plugins.load("runtimes", run.runtime).prepared(None, place, options_of(run)))


class Enterable(str):
    """Path of an image in its form; false where that could not be made.

    Snakemake asks for its truth again when the job begins: it then enters nothing, and
    start_run.py says why.
    """

    def __bool__(self):
        return not failure(f"{Path(self).parent}.json")


@contextlib.contextmanager
def failure_in(path, what=""):
    """Have an Error (or OSError) of this block written to image.json or a form.

    Runs that need it are then skipped with this reason, and the others go on.
    """
    try:
        yield
    except (Error, OSError) as error:
        reason = f"{what}{error}"
        print(f"error: {reason}", file=sys.stderr)
        write_json(path, {"failure": redaction.redact(reason)})


def failure(path):
    """Why an image or a form could not be made, as `failure_in` wrote it; else None."""
    return (common_files.read_json(path) or {}).get("failure")


def read(path):
    """The Image that image.json describes.

    Raises:
        Error: it is missing or damaged.
        Unusable: it could not be made.
    """
    found = read_form(path)
    keys = ("name", "kind", "digest", "image_id", "marked", "environment")
    image = Image(**{key: found[key] for key in keys}, path=Path(found["path"]))
    if not (image.marker / MARKER).is_file():
        raise Error(
            f"{image.marker / MARKER} is missing: an earlier version made the image, or part of it "
            f"is gone; delete {IMAGES / image.name}, so that it is made again"
        )
    return image


def read_form(path):
    """What `prepare` wrote.

    Raises:
        Error: it is missing or damaged.
        Unusable: the form could not be made.
    """
    found = common_files.read_json(path)
    if not found:
        raise Error(f"{path} is missing or damaged: make the image again (target images)")
    if "failure" in found:
        raise Unusable(found["failure"])
    return found


def try_again(paths):
    """Forget, of some images and forms, that they could not be made: by now it may be otherwise."""
    for path in filter(failure, paths):
        Path(path).unlink()


def digest_of_form(path):
    """The digest of the image that a form is of, be it that the form could not be made; or None."""
    return (_made(Path(path).with_name("image.json")) or {}).get("digest")


def _made(path):
    """What is written about an image or a form; None where it is missing or could not be made."""
    found = common_files.read_json(path)
    return None if found and "failure" in found else found


def see_packages(run, form):
    """See that an image has what a run needs beside TensorFlow.

    Raises:
        Unusable: it has not.
    """
    if other_trainers.is_external(run):
        return  # what it needs is its own affair
    for package in plugins.load("strategies", run.strategy).Strategy.packages:
        if not form["packages"].get(package):
            raise Unusable(f"{package} is not in the image {form['image']} ({form['digest']})")


def unsupported(run, images):
    """Why a run in a container cannot be done here, as far as is known before, or None.

    Args:
        images: the config's `images`.
    """
    module = plugins.load("runtimes", run.runtime)
    if run.nodes > 1 and options_of(run).get("start") == "directive":
        return f"start: directive enters an image on one node only, not on {run.nodes}"
    missing = tools.missing(module.PROGRAMS)
    if missing:
        return f"runtime {run.runtime}: {missing}"
    form = _made(form_path(run))
    try:
        return see_packages(run, form) if form else None
    except Unusable as error:
        # Not where the image is to be another one.
        now = digest(run.environment, settings(run.environment, images))
        return str(error) if now == form["digest"] else None
