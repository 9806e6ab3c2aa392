"""OCI image layouts: folders with an image's manifest, config and layers, named by their digests.

- `unpack` converts an archive of `podman save`, `docker save` or `buildah push`, or a folder with
  its content, to a layout, and compares every blob with its digest.
- `add_file` adds a file as one more layer: this puts our marker into an image.
- `before.json` is the index without that layer, for runtimes that write the marker themselves.

Sources: the OCI image layout and image format specifications, version 1.1; Docker's image
specification, version 1.2, for `docker save`. Digests of files and folders on disk are here, too.
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
import zlib
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import canonical_json, sha256, write_json
from dlbench.data.archives import Member
from dlbench.images.runtimes import TAG, UNMARKED_INDEX

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# Docker's media types of layers; skopeo and others do not accept them in a layout.
DOCKER_LAYERS = {
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{LAYER}+gzip",
}
# Python's name of an architecture: the name in images.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def unpack(archive: str | Path, folder: str | Path) -> None:
    """Convert an archive with one image, or a folder with an archive's content, to a layout.

    `folder`: an empty folder for the layout. Raises Error: `archive` is no image archive, or a blob
    does not match its digest.
    """
    folder = Path(folder)
    try:
        if Path(archive).is_dir():
            _copy_files(Path(archive), folder)
        else:
            with tarfile.open(archive, tarinfo=Member) as tar:
                for member in tar:
                    _extract(tar, member, folder)
    except (tarfile.TarError, OSError, EOFError, KeyError, RecursionError, zlib.error) as error:
        raise Error(f"{archive} cannot be read as an image archive: {error}") from error
    if not (folder / "oci-layout").is_file():
        if not (folder / "manifest.json").is_file():
            raise Error(
                f"{archive} is no image archive: expected oci-layout or manifest.json in it, "
                "as `podman save --format oci-archive` or `docker save` writes them"
            )
        _from_docker(folder, archive)
    for blob in (folder / "blobs" / "sha256").glob("*"):
        if sha256(blob) != blob.name:
            raise Error(f"{archive} is damaged: blob {blob.name} does not match its digest")


def read_image(folder: str | Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(digest, manifest, config) of the one image in a layout for this machine's architecture.

    Raises Error: the layout has no such image or several, or is damaged.
    """
    folder = Path(folder)
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    try:
        entries = json.loads((folder / "index.json").read_bytes())["manifests"]
        while len(entries) == 1 and entries[0].get("mediaType") in INDEX_TYPES:
            entries = _read_blob(folder, entries[0]["digest"])["manifests"]
        matching = (
            entries
            if len(entries) == 1
            else [entry for entry in entries if _is_for(entry, architecture)]
        )
        if len(matching) != 1:
            raise Error(
                f"{folder}: expected one image for linux on {architecture}, found {len(matching)} "
                f"among {len(entries)}"
            )
        digest = matching[0]["digest"]
        manifest = _read_blob(folder, digest)
        config = _read_blob(folder, manifest["config"]["digest"])
        layers = [layer["digest"] for layer in manifest["layers"]]
        missing = [layer for layer in layers if not _blob_path(folder, layer).is_file()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"{folder}: not an image layout, or damaged: {error!r}") from error
    if config.get("architecture", architecture) != architecture:
        raise Error(
            f"the image is for the architecture {config['architecture']}; this machine is "
            f"{architecture}"
        )
    if missing:
        raise Error(f"{folder} is incomplete: the layer {missing[0]} is missing")
    return digest, manifest, config


def add_file(folder: str | Path, path: str, content: bytes) -> str:
    """Add a file to the image as its top layer; the layout then lists only the new image.

    `path`: path of the file, relative to the root of the image. Returns the digest of the new
    manifest.
    """
    folder = Path(folder)
    _, manifest, config = read_image(folder)
    layer = _layer_tar(path, content)
    config = {
        **config,
        "rootfs": {
            **config["rootfs"],
            "diff_ids": [*config["rootfs"]["diff_ids"], _digest(layer)],
        },
        "history": [*(config.get("history") or []), {"created_by": f"dlbench: /{path}"}],
    }
    layers = [
        {
            **descriptor,
            "mediaType": DOCKER_LAYERS.get(descriptor["mediaType"], descriptor["mediaType"]),
        }
        for descriptor in manifest["layers"]
    ]
    before = {
        **manifest,
        "mediaType": MANIFEST,
        "config": {**manifest["config"], "mediaType": CONFIG},
        "layers": layers,
    }
    _write_index(folder, UNMARKED_INDEX, before)
    after = {
        "config": _write_blob(folder, CONFIG, canonical_json(config)),
        "layers": [*layers, _write_blob(folder, LAYER, layer)],
    }
    return _write_manifest(folder, {**before, **after})


def _copy_files(source, folder):
    """Copy the files of a folder without their modes, so that the copies are writable."""
    for file in source.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def _extract(tar, member, folder):
    """Write one file of an archive; a link becomes the file that it names in the archive."""
    if member.isdir():
        return
    content = tar.extractfile(member)
    if content is None or ".." in Path(member.name).parts or member.name.startswith("/"):
        raise tarfile.ExtractError(f"{member.name} is no plain file inside the archive's folder")
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def _is_for(entry, architecture):
    platform_ = entry.get("platform", {})
    return (platform_.get("os", "linux"), platform_.get("architecture")) == ("linux", architecture)


def _from_docker(folder, archive):
    """Convert the files of `docker save` to a layout."""
    try:
        (entry,) = json.loads((folder / "manifest.json").read_bytes())
        config = (folder / entry["Config"]).read_bytes()
        # A layer may be listed twice.
        moved = {
            name: _move_to_blobs(folder, folder / name) for name in dict.fromkeys(entry["Layers"])
        }
        layers = [moved[name] for name in entry["Layers"]]
        diff_ids = json.loads(config)["rootfs"]["diff_ids"]
        for layer, diff_id in zip(layers, diff_ids, strict=True):
            if layer["mediaType"] == LAYER and layer["digest"] != diff_id:
                raise ValueError(f"damaged: the layer {diff_id} does not match its digest")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Error(f"{archive}: expected one image as docker save writes it: {error!r}") from error
    write_json(folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _write_blob(folder, CONFIG, config),
        "layers": layers,
    }
    _write_manifest(folder, manifest)


def _move_to_blobs(folder, file):
    """Move a layer into the folder of blobs. Returns its descriptor."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{file} is outside of the archive")
    digest = f"sha256:{sha256(file)}"
    target = _blob_path(folder, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "rb") as content:
        packed = content.read(2) == b"\x1f\x8b"
    file.replace(target)
    return {
        "mediaType": LAYER + ("+gzip" if packed else ""),
        "digest": digest,
        "size": target.stat().st_size,
    }


def _write_manifest(folder, manifest):
    """Write a manifest, which the layout then lists alone. Returns its digest."""
    digest = _write_index(folder, "index.json", manifest)
    # For `docker load`, most versions of which read only Docker's layout.
    config, *layers = (
        str(_blob_path(Path(), descriptor["digest"]))
        for descriptor in (manifest["config"], *manifest["layers"])
    )
    write_json(folder / "manifest.json", [{"Config": config, "RepoTags": None, "Layers": layers}])
    return digest


def _write_index(folder, index, manifest):
    """Write an index that lists this manifest only. Returns the manifest's digest."""
    entry = _write_blob(folder, MANIFEST, canonical_json(manifest))
    entry["annotations"] = {"org.opencontainers.image.ref.name": TAG}
    write_json(folder / index, {"schemaVersion": 2, "manifests": [entry]})
    return entry["digest"]


def _layer_tar(path, content):
    """A tar archive, as bytes, with one file without time stamp and owner."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        member = tarfile.TarInfo(path)
        member.size, member.mode = len(content), 0o644
        tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def _write_blob(folder, media_type, content):
    """Write a blob. Returns its descriptor."""
    digest = _digest(content)
    target = _blob_path(folder, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _read_blob(folder, digest):
    """Read the JSON in a blob and compare it with its digest."""
    content = _blob_path(folder, digest).read_bytes()
    if _digest(content) != digest:
        raise ValueError(f"blob {digest} does not match its digest")
    return json.loads(content)


def _blob_path(folder, digest):
    return folder / "blobs" / digest.replace(":", "/")


def _digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def content_digest(source: str | Path) -> str:
    """SHA-256 of a file's content, or of a folder's names, modes, links and contents."""
    path = Path(source)
    return f"sha256:{_tree_digest(path, content=True) if path.is_dir() else sha256(path)}"


def stat_signature(source: str | Path) -> str:
    """Path, sizes and modification times, as text: cheap to read; a new content changes it."""
    path = Path(source).absolute()
    if path.is_dir():
        return f"{path} {_tree_digest(path, content=False)}"
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _tree_digest(folder, content):
    """SHA-256 of a tree's names, modes and links, and of its files' contents.

    `content`: False: sizes and modification times of the files instead of their contents.
    """
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            status = path.lstat()
            detail = ""
            if stat.S_ISLNK(status.st_mode):
                detail = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                times = f"{status.st_size} {status.st_mtime_ns}"
                detail = _file_digest(path) if content else times
            fields = [str(path.relative_to(folder)), str(status.st_mode), detail]
            total.update(("\0".join(fields) + "\n").encode(errors="surrogateescape"))
    return total.hexdigest()


def _file_digest(path):
    # Some files of a root folder are readable by root only; no run reads them.
    with contextlib.suppress(PermissionError):
        return sha256(path)
    return "not readable"
