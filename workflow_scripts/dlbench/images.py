"""Images: where each comes from, what is in it, and the form that each runtime takes.

- An image is made once (built, pulled, or taken where it lies) and named by its digest:
  that of its manifest, or the SHA-256 of a SIF file or of the listing of a root folder.
- All runtimes get the same content: what they take is converted from the one image.
- Each form carries our marker file with the image's identity; it is looked at from inside
  when the form is made, and by every trainer.

results/images/{name}/ has image.json, and {form}.json and {form}/ for each runtime.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error, oci, options, plugins
from dlbench.files import sha256, write_json
from dlbench.runtimes import APPTAINER, KEPT_OUT, Container

IMAGES = Path("results/images")
RECIPES = Path("envs")
DEFAULTS = {
    "source": None,
    "digest": None,
    "base": None,
    "python": "python3",
    "binds": [],
    "build_binds": [],
}
REGISTRY = "docker://"
MARKER = "etc/dlbench-image.json"
DESCRIBE = "workflow_scripts/describe_image.py"
# What an image sets and no host's value may replace.
VARIABLES = ("LD_LIBRARY_PATH", "OPAL_PREFIX", "PATH", "PMIX_INSTALL_PREFIX", "PYTHONPATH")
PYTHON_AT_LEAST = (3, 10)  # of Keras 3
ENGINES = ("buildah", "podman", "docker")
HINTS = {
    "no space left": "a disk is full; APPTAINER_TMPDIR, APPTAINER_CACHEDIR, TMPDIR and the "
    "engine's storage may be put elsewhere",
    "permission denied": "a folder may not be writable: APPTAINER_TMPDIR, APPTAINER_CACHEDIR, "
    "TMPDIR, the engine's storage or the results",
    "exec format error": "the image is for another kind of processor",
    "unauthorized": "the registry wants a login, or the name is misspelt",
}


class Lacking(Error):
    """An image lacks a package that a run needs; the message says which."""


@dataclass(frozen=True)
class Image:
    """An image as it lies here.

    `kind` is oci (a layout), sif or folder. `marked` says whether it carries our marker; where
    it does not, the folder `marker` has the files that give it one. `image_id` is what the
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
    if path.is_dir():
        return "folder"
    if path.is_file():
        with open(path, "rb") as file:
            # The magic word of the Singularity image format, after its launch line.
            return "sif" if b"SIF_MAGIC" in file.read(64) else "archive"
    raise Error(
        f"image source {source}: expected a SIF file, a root folder, an image archive, a folder "
        f"with uv.lock, or {REGISTRY}NAME; found nothing there"
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
    made = _read(image_path(name))
    if made and made["state"] == _state(settings["source"]):
        return made["identity"]
    return _content_digest(settings["source"])


def digest(name, settings):
    """The digest of an image that is there and is still the one asked for, else None."""
    return known(name, settings)[1]


def known(name, settings):
    """(identity, digest) of an image; finding out may take seconds."""
    wanted = identity(name, settings)
    made = _read(image_path(name))
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
    return plugins.load("runtimes", run.runtime).prepared(None, place, options_of(run))


def directive_environment(run, images, device):
    """What a run's container needs beside its image, as variables for its runtime."""
    wanted = settings(run.environment, images)
    container = Container("", os.getcwd(), tuple(wanted["binds"]), gpus=device == "gpu")
    return plugins.load("runtimes", run.runtime).directive_environment(container)


def make(name, settings, output):
    """Build, pull or take an image, and say in image.json which it is.

    Raises:
        Error: it cannot be had, or its digest is not the pinned one.
    """
    output = Path(output)
    place = output.parent
    place.mkdir(parents=True, exist_ok=True)
    kind = origin(settings)
    found = {
        "registry": _pull,
        "recipe": _build,
        "archive": _unpack,
        "sif": _take,
        "folder": _take,
    }[kind](name, settings, place)
    if settings["digest"] not in (None, found["digest"]):
        raise Error(
            f"image {name}: expected the pinned digest {settings['digest']}, found "
            f"{found['digest']} at {settings['source']}: it was replaced, or the pin is old"
        )
    marker = {"image_id": found.pop("image_id", None) or found["digest"], "image": name}
    text = json.dumps(marker).encode() + b"\n"
    if found["kind"] == "oci":
        oci.add_file(found["path"], MARKER, text)
        found["marked"] = True
    else:
        target = place / "marker" / MARKER
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    write_json(
        output,
        {
            "name": name,
            "source": settings["source"],
            "identity": identity(name, settings),
            "state": None if kind in ("registry", "recipe") else _state(settings["source"]),
            "image_id": marker["image_id"],
            "environment": _environment_in(found["path"], found["kind"]),
            **found,
        },
    )


def read(path):
    """The Image that image.json describes.

    Raises:
        Error: it is missing or damaged.
    """
    found = _read(path)
    if not found:
        raise Error(f"{path} is missing or damaged: make the image again (target images)")
    keys = ("name", "kind", "digest", "image_id", "marked", "environment")
    return Image(**{key: found[key] for key in keys}, path=Path(found["path"]))


def prepare(image, runtime, chosen, python, gpus, output):
    """Bring an image to the form that a runtime takes, look at it from inside, and say so.

    Args:
        image: the Image.
        chosen: the runtime's options with their values.
        python: the interpreter inside, a name or a path.
        output: path of the JSON file; what is made lies beside it, in a folder without suffix.

    Raises:
        Error: a program is missing, the form cannot be made, what runs in it is not inside
            the image, or it lacks what every run needs.
    """
    module = plugins.load("runtimes", runtime)
    chosen = options.parse("runtime", runtime, module.OPTIONS, "") | chosen
    output = Path(output)
    place = output.with_suffix("")
    missing = missing_program(module)
    if missing:
        raise Error(missing)
    _fresh(place)
    for command in module.prepare(image, place, chosen, gpus):
        run(command)
    started = Container(
        image=module.prepared(image, place, chosen),
        folder=os.getcwd(),
        options=chosen,
        gpus=gpus,
        environment=image.environment,
        name=f"describe-{image.name}",
    )
    inside = _describe(module.command(started, [python, DESCRIBE]), image, runtime)
    _check(inside, image, runtime)
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


def read_form(path):
    """What `prepare` wrote.

    Raises:
        Error: it is missing or damaged.
    """
    found = _read(path)
    if not found:
        raise Error(f"{path} is missing or damaged: make the image again (target images)")
    return found


def see_packages(run, form):
    """See that an image has what a run needs beside TensorFlow.

    Raises:
        Lacking: it has not.
    """
    for package in plugins.load("strategies", run.strategy).Strategy.packages:
        if not form["packages"].get(package):
            raise Lacking(f"{package} is not in the image {form['image']} ({form['digest']})")


def unsupported(run, images):
    """Why a run in a container cannot be done here, as far as is known before, or None.

    Args:
        images: the config's `images`.
    """
    module = plugins.load("runtimes", run.runtime)
    if run.nodes > 1 and options_of(run).get("start") == "directive":
        return f"start: directive enters an image on one node only, not on {run.nodes}"
    missing = missing_program(module)
    if missing:
        return f"runtime {run.runtime}: {missing}"
    form = _read(form_path(run))
    try:
        return see_packages(run, form) if form else None
    except Lacking as error:
        # Not where the image is to be another one.
        now = digest(run.environment, settings(run.environment, images))
        return str(error) if now == form["digest"] else None


def missing_program(module):
    """What a runtime needs and this machine lacks, in words; None where all is there."""
    for names in module.PROGRAMS:
        names = (names,) if isinstance(names, str) else names
        if not any(map(shutil.which, names)):
            return f"{' or '.join(names)} is not on the path of this machine"
    return None


def _version(module):
    """What a runtime says when it is asked for its version: its first line."""
    said = subprocess.run(module.version(), capture_output=True, text=True, check=False)
    return next(iter((said.stdout + said.stderr).splitlines()), "unknown").strip()


def run(command, folder=None):
    """Run one command, its output to the terminal and, where it fails, into the error.

    Raises:
        Error: it fails or is not there.
    """
    print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
    lines = []
    try:
        with subprocess.Popen(
            command, cwd=folder, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                lines = [*lines[-30:], line.strip()]
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    if process.returncode:
        said = " | ".join(filter(None, lines[-4:]))
        near = [hint for word, hint in HINTS.items() if word in " ".join(lines).lower()]
        raise Error(
            f"{Path(command[0]).name} failed (exit code {process.returncode}): {said}"
            + "".join(f"; {hint}" for hint in near)
        )
    return "\n".join(lines)


def _pull(name, settings, place):
    reference = settings["source"].removeprefix(REGISTRY)
    if settings["digest"] and "@" not in reference:
        reference += f"@{settings['digest']}"
    layout = _fresh(place / "oci")
    pinned = reference.partition("@")[2] or None
    if shutil.which("skopeo"):
        if not pinned:
            inspect = ["skopeo", "inspect", "--format={{.Digest}}", REGISTRY + reference]
            pinned = run(inspect).splitlines()[-1]
            reference = f"{_untagged(reference)}@{pinned}"
        run(["skopeo", "copy", REGISTRY + reference, f"oci:{layout}:{oci.TAG}"])
    elif engine := next(filter(shutil.which, ENGINES), None):
        run([engine, "pull", reference])
        _push(engine, reference, layout, place)
    else:
        return _pull_as_sif(settings, reference, place)
    oci.manifest(layout)
    return {"kind": "oci", "path": str(layout), "digest": pinned or oci.manifest(layout)[0]}


def _pull_as_sif(settings, reference, place):
    """Without a tool for OCI images: as a SIF, which Apptainer makes itself."""
    tool = next(filter(shutil.which, APPTAINER), None)
    if not tool:
        raise Error(
            f"{settings['source']} cannot be pulled: none of skopeo, {', '.join(ENGINES)} and "
            f"{' or '.join(APPTAINER)} is on the path of this machine"
        )
    sif = place / "pulled.sif"
    run([tool, "build", "--force", sif, REGISTRY + reference])
    digest = reference.partition("@")[2] or f"sha256:{sha256(sif)}"
    return {"kind": "sif", "path": str(sif), "digest": digest, "marked": False}


def _build(name, settings, place):
    """An image of one of our environments: by an engine as OCI, else by Apptainer as SIF."""
    folder, start = Path(settings["source"]), base(settings)
    image_id = f"build-{uuid.uuid4()}"
    arguments = {"ENVIRONMENT": name, "IMAGE_ID": image_id}
    engine = next(filter(shutil.which, ENGINES), None)
    if engine:
        layout = _fresh(place / "oci")
        local = f"localhost/dlbench/build-{name.lower()}"
        reference = f"oci-archive:{Path(start).absolute()}" if Path(start).is_file() else start
        arguments["BASE"] = reference
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        recipe = f"--file={RECIPES / 'Containerfile'}"
        binds = [f"--volume={bind}" for bind in settings["build_binds"]]
        run([engine, "build", *binds, *given, recipe, f"--tag={local}", str(folder)])
        _push(engine, local, layout, place)
        run([engine, "rmi", local])
        digest = oci.manifest(layout)[0]
        return {"kind": "oci", "path": str(layout), "digest": digest, "image_id": image_id}
    tool = next(filter(shutil.which, APPTAINER), None)
    if not tool:
        raise Error(
            f"image {name} cannot be built: none of {', '.join(ENGINES)} and "
            f"{' or '.join(APPTAINER)} is on the path of this machine; build it elsewhere and give "
            f"it as a file, or name a published one: images: {{{name}: {{source: ...}}}}"
        )
    bootstrap = "oci-archive" if Path(start).is_file() else "docker"
    start = str(Path(start).absolute()) if Path(start).is_file() else start
    arguments |= {"BASE": start.removeprefix("docker.io/"), "BOOTSTRAP": bootstrap}
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    given += [f"--bind={bind}" for bind in settings["build_binds"]]
    sif = (place / "built.sif").absolute()
    # The definition takes the lock file from the folder where it is built.
    run([tool, "build", "--force", *given, sif, "../apptainer.def"], folder)
    digest = f"sha256:{sha256(sif)}"
    return {
        "kind": "sif", "path": str(sif), "digest": digest, "image_id": image_id, "marked": True,
    }  # fmt: skip


def _unpack(name, settings, place):
    layout = _fresh(place / "oci")
    oci.unpack(settings["source"], layout)
    return {"kind": "oci", "path": str(layout), "digest": oci.manifest(layout)[0]}


def _take(name, settings, place):
    """A SIF file or a root folder of the user's, used where it lies."""
    path = Path(settings["source"]).absolute()
    kind = origin(settings)
    image_id = _image_id_in(path, kind)
    return {
        "kind": kind,
        "path": str(path),
        "digest": _content_digest(path),
        "image_id": image_id,
        "marked": image_id is not None,
    }


def _image_id_in(path, kind):
    """What the marker of an image says; None where it has none."""
    if kind == "folder":
        return (_read(path / MARKER) or {}).get("image_id")
    tool = next(filter(shutil.which, APPTAINER), None)
    if not tool:
        raise Error(f"{path} is a SIF file; {' or '.join(APPTAINER)} is not on the path")
    shown = subprocess.run(
        [tool, "--silent", "exec", path, "cat", f"/{MARKER}"], capture_output=True, check=False
    )
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return json.loads(shown.stdout)["image_id"] if shown.returncode == 0 else None


def _environment_in(path, kind):
    """Those of VARIABLES that an image sets."""
    if kind == "oci":
        lines = oci.manifest(path)[2].get("config", {}).get("Env") or []
    else:
        tool = next(filter(shutil.which, APPTAINER), None)
        if not tool:
            return {}
        shown = subprocess.run(
            [tool, "--silent", "exec", "--cleanenv", path, "env"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines = shown.stdout.splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: values[name] for name in VARIABLES if values.get(name)}


def _push(engine, reference, layout, place):
    """Bring an image from an engine's store to a layout."""
    if engine == "docker":
        archive = place / "saved.tar"
        run(["docker", "save", f"--output={archive}", reference])
        oci.unpack(archive, layout)
        archive.unlink()
    else:
        run([engine, "push", reference, f"oci:{layout}:{oci.TAG}"])


def _describe(command, image, runtime):
    """What describe_image.py says inside."""
    # Without what this machine says of its own programs: what is seen is the image's.
    hidden = (*KEPT_OUT, "LD_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    with contextlib.suppress(IndexError, ValueError):
        if finished.returncode == 0:
            return json.loads(finished.stdout.strip().splitlines()[-1])
    said = " | ".join((finished.stdout + finished.stderr).strip().splitlines()[-4:]) or "nothing"
    python = "is there a python3 in it? (images: python names another)"
    raise Error(
        f"image {image.name} under {runtime}: Python could not be started inside "
        f"(exit code {finished.returncode}); it said: {said}; {python}"
    )


def _check(inside, image, runtime):
    """See that it is the image, and that every run can use it."""
    where = f"image {image.name} under {runtime}"
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
    version = tuple(map(int, inside["python_version"].split(".")[:2]))
    if version < PYTHON_AT_LEAST:
        least = ".".join(map(str, PYTHON_AT_LEAST))
        raise Error(f"{where}: needs Python {least} or newer, has {inside['python_version']}")
    for package in ("tensorflow", "keras", "numpy"):
        if not inside["packages"][package]:
            raise Error(f"{where}: {package} is not installed for {inside['python']}")


def _content_digest(source):
    path = Path(source)
    return f"sha256:{_tree_digest(path, content=True) if path.is_dir() else sha256(path)}"


def _state(source):
    """What changes whenever a file or folder does, and is cheap to ask for."""
    path = Path(source).absolute()
    if path.is_dir():
        return f"{path} {_tree_digest(path, content=False)}"
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _tree_digest(folder, content):
    """Digest of a tree's names, modes and links, and of its files' content or else their times."""
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            status = path.lstat()
            what = ""
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                what = _file_digest(path) if content else f"{status.st_size} {status.st_mtime_ns}"
            words = [str(path.relative_to(folder)), str(status.st_mode), what]
            total.update(("\0".join(words) + "\n").encode(errors="surrogateescape"))
    return total.hexdigest()


def _file_digest(path):
    # In a folder that root made some files are for root only: no run of ours reads them.
    with contextlib.suppress(PermissionError):
        return sha256(path)
    return "not readable"


def _untagged(reference):
    head, slash, last = reference.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _fresh(folder):
    if folder.exists():
        # Images have folders that their owner may not write to.
        run(["chmod", "--recursive", "u+rwX", folder])
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _read(path):
    """The JSON object in a file; None where there is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
