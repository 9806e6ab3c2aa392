"""Images from where they come from: built, pulled, or taken where they lie."""

import contextlib
import json
import shutil
import subprocess
import uuid
from pathlib import Path

from dlbench import Error
from dlbench.common import files, tools
from dlbench.common.files import make_empty_folder, sha256, write_json
from dlbench.images import digests, oci, trainer_image
from dlbench.images.runtimes import APPTAINER, TAG
from dlbench.images.trainer_image import MARKER, RECIPES, REGISTRY

ENGINES = ("buildah", "podman", "docker")
# What an image sets and no host's value may replace.
VARIABLES = ("LD_LIBRARY_PATH", "OPAL_PREFIX", "PATH", "PMIX_INSTALL_PREFIX", "PYTHONPATH")


def make(name, settings, output, study=None):
    """Build, pull or take an image, and say in image.json which it is.

    Args:
        study: name of the study it is made for.

    Raises:
        Error: it cannot be had, or its digest is not the pinned one.
    """
    output = Path(output)
    place = output.parent
    place.mkdir(parents=True, exist_ok=True)
    kind = trainer_image.origin(settings)
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
    target = place / "marker" / MARKER
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    for path in (target, *list(target.parents)[:2]):  # it is laid over the image's, modes and all
        path.chmod(0o644 if path == target else 0o755)
    if found["kind"] == "oci":
        oci.add_file(found["path"], MARKER, text)
        found["marked"] = True
    write_json(
        output,
        {
            "name": name,
            "study": study,
            "source": settings["source"],
            "asked": trainer_image.asked(settings),
            "identity": trainer_image.identity(name, settings),
            "state": None
            if kind in ("registry", "recipe")
            else digests.state_of(settings["source"]),
            "image_id": marker["image_id"],
            "environment": _environment_in(found["path"], found["kind"]),
            **found,
        },
    )


def _pull(name, settings, place):
    reference = settings["source"].removeprefix(REGISTRY)
    if settings["digest"] and "@" not in reference:
        reference = f"{_untagged(reference)}@{settings['digest']}"
    layout = make_empty_folder(place / "oci")
    pinned = reference.partition("@")[2] or None
    if shutil.which("skopeo"):
        if not pinned:
            inspect = ["skopeo", "inspect", "--format={{.Digest}}", REGISTRY + reference]
            pinned = tools.run(inspect).splitlines()[-1]
            reference = f"{_untagged(reference)}@{pinned}"
        tools.run(["skopeo", "copy", REGISTRY + reference, f"oci:{layout}:{TAG}"])
    elif engine := tools.first_installed(ENGINES):
        tools.run([engine, "pull", reference])
        _push(engine, reference, layout, place)
    else:
        return _pull_as_sif(settings, reference, place)
    oci.manifest(layout)
    return {"kind": "oci", "path": str(layout), "digest": pinned or oci.manifest(layout)[0]}


def _pull_as_sif(settings, reference, place):
    """Without a tool for OCI images: as a SIF, which Apptainer makes itself."""
    tool = tools.first_installed(APPTAINER)
    if not tool:
        raise Error(
            f"{settings['source']} cannot be pulled: none of skopeo, {', '.join(ENGINES)} and "
            f"{' or '.join(APPTAINER)} is on the path of this machine"
        )
    sif = place / "pulled.sif"
    tools.run([tool, "build", "--force", sif, REGISTRY + reference])
    digest = reference.partition("@")[2] or f"sha256:{sha256(sif)}"
    return {"kind": "sif", "path": str(sif), "digest": digest, "marked": False}


def _build(name, settings, place):
    """An image of one of our environments: by an engine as OCI, else by Apptainer as SIF."""
    folder, start = Path(settings["source"]), trainer_image.base(settings)
    image_id = f"build-{uuid.uuid4()}"
    arguments = {"ENVIRONMENT": name, "IMAGE_ID": image_id}
    engine = tools.first_installed(ENGINES)
    if engine:
        layout = make_empty_folder(place / "oci")
        local = f"localhost/dlbench/build-{name.lower()}"
        reference = f"oci-archive:{Path(start).absolute()}" if Path(start).is_file() else start
        arguments["BASE"] = reference
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        recipe = f"--file={RECIPES / 'Containerfile'}"
        binds = [f"--volume={bind}" for bind in settings["build_binds"]]
        tools.run([engine, "build", *binds, *given, recipe, f"--tag={local}", str(folder)])
        _push(engine, local, layout, place)
        tools.run([engine, "rmi", local])
        digest = oci.manifest(layout)[0]
        return {"kind": "oci", "path": str(layout), "digest": digest, "image_id": image_id}
    tool = tools.first_installed(APPTAINER)
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
    tools.run([tool, "build", "--force", *given, sif, "../apptainer.def"], folder)
    digest = f"sha256:{sha256(sif)}"
    return {
        "kind": "sif", "path": str(sif), "digest": digest, "image_id": image_id, "marked": True,
    }  # fmt: skip


def _unpack(name, settings, place):
    layout = make_empty_folder(place / "oci")
    oci.unpack(settings["source"], layout)
    return {"kind": "oci", "path": str(layout), "digest": oci.manifest(layout)[0]}


def _take(name, settings, place):
    """A SIF file or a root folder of the user's, used where it lies."""
    path = Path(settings["source"]).absolute()
    kind = trainer_image.origin(settings)
    image_id = _image_id_in(path, kind)
    return {
        "kind": kind,
        "path": str(path),
        "digest": digests.content_digest(path),
        "image_id": image_id,
        "marked": image_id is not None,
    }


def _image_id_in(path, kind):
    """What the marker of an image says; None where it has none, or a link in its place."""
    if kind == "folder":
        if any((path / part).is_symlink() for part in (MARKER, *Path(MARKER).parents[:-1])):
            return None
        return (files.read_json(path / MARKER) or {}).get("image_id")
    if not tools.first_installed(APPTAINER):
        raise Error(f"{path} is a SIF file; {' or '.join(APPTAINER)} is not on the path")
    shown = _said_in(path, "sh", "-c", f"[ -L /{MARKER} ] || [ ! -e /{MARKER} ] || cat /{MARKER}")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return json.loads(shown)["image_id"]


def _environment_in(path, kind):
    """Those of VARIABLES that an image sets."""
    if kind == "oci":
        lines = oci.manifest(path)[2].get("config", {}).get("Env") or []
    elif not tools.first_installed(APPTAINER):
        return {}  # a folder, for a runtime that knows nothing else of it either
    else:
        lines = _said_in(path, "env").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: values[name] for name in VARIABLES if values.get(name)}


def _said_in(path, *command):
    """What a command says in an image, which Apptainer enters.

    Raises:
        Error: it cannot be run there.
    """
    enter = [tools.first_installed(APPTAINER), "--silent", "exec", "--cleanenv", path]
    shown = subprocess.run([*enter, *command], capture_output=True, text=True, check=False)
    if shown.returncode:
        raise Error(
            f"{path}: {enter[0]} cannot run {command[0]} in it (exit code {shown.returncode}): "
            f"{tools.failure_reason(shown.stderr + shown.stdout)}"
        )
    return shown.stdout


def _push(engine, reference, layout, place):
    """Bring an image from an engine's store to a layout."""
    if engine == "docker":
        archive = place / "saved.tar"
        tools.run(["docker", "save", f"--output={archive}", reference])
        oci.unpack(archive, layout)
        archive.unlink()
    else:
        tools.run([engine, "push", reference, f"oci:{layout}:{TAG}"])


def _untagged(reference):
    """A name without its tag or digest: tools take one or the other, not both.

    >>> _untagged("localhost:5000/tensorflow:25.02"), _untagged("a/b@sha256:0")
    ('localhost:5000/tensorflow', 'a/b')
    """
    head, slash, last = reference.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
