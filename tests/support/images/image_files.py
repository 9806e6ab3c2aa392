"""Small images made by hand, as archives and layouts have them."""

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from dlbench.images import make_image, oci, trainer_image

INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER = "application/vnd.docker."
MINE = oci.ARCHITECTURES.get(oci.platform.machine(), oci.platform.machine())
SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x00" + b"content"
OTHER = "arm64" if MINE == "amd64" else "amd64"


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar(files):
    """The bytes of a tar file; a value may be bytes or a TarInfo."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


class Blobs(dict):
    """Files of a layout, by path."""

    def add(self, content, media_type, **more):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self[f"blobs/sha256/{digest(content)[7:]}"] = content
        return {"mediaType": media_type, "digest": digest(content), "size": len(content), **more}

    def image(self, layers, architecture=MINE, docker=False, packed=False, **more):
        """One image of some layers, each the bytes of a tar. Returns its descriptor."""
        layer = oci.LAYER + ("+gzip" if packed else "")
        layer = DOCKER + "image.rootfs.diff.tar.gzip" if docker else layer
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["PATH=/bin", "A=1"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(one) for one in layers]},
            "history": [{"created_by": "test"} for _ in layers],
        }
        pack = gzip.compress if docker or packed else bytes
        media_type = DOCKER + "distribution.manifest.v2+json" if docker else oci.MANIFEST
        config_type = DOCKER + "container.image.v1+json" if docker else oci.CONFIG
        content = {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": self.add(config, config_type),
            "layers": [self.add(pack(one), layer) for one in layers],
        }
        return self.add(content, media_type, **more)

    def index(self, *entries):
        self["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        self["index.json"] = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
        return self


LAYER = tar({"bin/hello": b"#!/bin/sh\n", "etc/os-release": b"ID=test\n"})
SECOND = tar({"etc/more": b"more\n"})


def image_of(files, architecture=MINE):
    """What `docker save` wrote before its version 25: named folders, a manifest.json."""
    config = {"architecture": architecture, "os": "linux",
              "rootfs": {"diff_ids": [digest(one) for one in files.values()]}}  # fmt: skip
    entry = {"Config": "abc.json", "RepoTags": ["x:1"], "Layers": list(files)}
    return {
        "abc.json": json.dumps(config).encode(),
        "manifest.json": json.dumps([entry]).encode(),
        "repositories": b"{}",
        **files,
    }


def program(name, script):
    Path("bin", name).unlink(missing_ok=True)
    Path("bin", name).write_text(f"#!/bin/sh\n{script}\n")
    Path("bin", name).chmod(0o755)


def recorded_output():
    return Path("said").read_text()


def archive(path="x.tar", **files):
    blobs = Blobs()
    blobs.index(blobs.image([tar(files or {"bin/sh": b"x"})]))
    Path(path).write_bytes(tar(blobs))
    return path


def sif(path="x.sif", content=b""):
    """A file that a fake Apptainer takes for a SIF without a marker."""
    program("apptainer", 'echo "$@" >> said; case "$*" in *" env") echo PATH=/opt/bin; esac')
    Path(path).write_bytes(SIF + content)
    return path


def root_folder(path="root", marker=None):
    Path(path, "etc").mkdir(parents=True)
    Path(path, "etc/os-release").write_text("ID=test")
    if marker is not None:
        Path(path, trainer_image.MARKER).write_text(marker)
    return path


def runnable_root(path="runnable"):
    """A root folder with this machine's sh, cat and env, and nothing else."""
    root = Path(root_folder(path))
    for name in ("sh", "cat", "env"):
        found = shutil.which(name, path="/usr/bin:/bin")
        needed = subprocess.run(["/usr/bin/ldd", found], capture_output=True, text=True, check=True)
        for file in (*re.findall(r"(/\S+) \(0x", needed.stdout), found):
            target = root / (f"bin/{name}" if file == found else file.lstrip("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    return path


def settings(source, **more):
    return trainer_image.settings("x", {"x": {"source": str(source), **more}})


def make(source, **more):
    make_image.make("x", settings(source, **more), trainer_image.image_path("x"))
    return trainer_image.read(trainer_image.image_path("x"))
