"""Images from each kind of source: a registry on this machine, archives, SIF files, folders."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from dlbench.archive import write_archive
from dlbench.images import make_image, oci, trainer_image
from dlbench.study import config
from support.archives import made_archives


@pytest.fixture(scope="module")
def registry(tools, campaign, place):
    """The address of a real registry that has the tests' base image as base:1; no TLS."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = place / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {place}/registry\n"
        f"http:\n  addr: {address}\n"
    )
    server = subprocess.Popen(
        ["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while subprocess.run(
        ["curl", "-sf", f"http://{address}/v2/"], check=False, stdout=subprocess.DEVNULL
    ).returncode:
        assert time.monotonic() < deadline and server.poll() is None
        time.sleep(0.1)
    push = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci-archive:{place}/base.tar"]
    subprocess.run([*push, f"docker://{address}/base:1"], check=True)
    yield address
    server.send_signal(signal.SIGTERM)
    server.wait(10)


@pytest.fixture
def here(registry, place, tmp_path, monkeypatch):
    """A project folder to make images in; the tools are configured for the registry."""
    for name in ("envs", "workflow_scripts"):
        os.symlink(place / "project" / name, tmp_path / name)
    insecure = tmp_path / ".config/containers/registries.conf"
    insecure.parent.mkdir(parents=True)
    insecure.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("APPTAINER_NOHTTPS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(settings):
    """Make the image `base` with settings. Returns the content of image.json."""
    path = trainer_image.image_path("base")
    make_image.make("base", trainer_image.settings("base", {"base": settings}), path)
    with open(path) as file:
        return json.load(file)


def test_a_published_image_is_pulled_and_named_by_its_digest(here, registry):
    by_tag = make({"source": f"docker://{registry}/base:1"})
    assert by_tag["kind"] == "oci" and by_tag["digest"].startswith("sha256:")
    pinned = make({"source": f"docker://{registry}/base:1", "digest": by_tag["digest"]})
    assert pinned["digest"] == pinned["image_id"] == by_tag["digest"]


def test_a_pulled_image_goes_along_with_an_archive_and_is_found_there(here, registry, monkeypatch):
    shutil.copytree(made_archives.archived(), "project", symlinks=True)
    monkeypatch.chdir("project")
    entry = {"source": f"docker://{registry}/base:1"}
    made = make(entry)
    settings = made_archives.finish_contained("base", entry)
    manifest = oci.read_image(made["path"])
    write_archive.write(settings, "with.zip", with_images=True)
    with zipfile.ZipFile("with.zip") as archive:
        archive.extractall("there")
    monkeypatch.chdir("there/archive/data")
    found = config.settings_of([])["images"]
    assert trainer_image.digest("base", trainer_image.settings("base", found)) == made["digest"]
    assert oci.read_image(trainer_image.read(trainer_image.image_path("base")).path) == manifest


def test_apptainer_alone_pulls_too_and_adds_the_marker(registry, users, place):
    tools_of_one = place / "apptainer-alone"
    tools_of_one.mkdir()
    for program in ("apptainer", "mksquashfs", "env", "sh", "ln", "chmod", "cp", "rm"):
        os.symlink(shutil.which(program), tools_of_one / program)
    alone = ["env", f"PATH={tools_of_one}", "APPTAINER_NOHTTPS=1", users.python]
    settings = json.dumps({"source": f"docker://{registry}/base:1"})
    image = trainer_image.image_path("base")
    program = "workflow_scripts/dlbench"
    make = ("make-image", "base", "--settings", settings, "--output", image)
    made = users.run(*alone, program, *make)
    assert made.returncode == 0, made.stdout
    found = json.loads((users.folder / image).read_text())
    assert (found["kind"], found["marked"]) == ("sif", False)
    form = "results/images/base/apptainer.json"
    prepare = ("prepare-image", image, "--runtime", "apptainer")
    prepared = users.run(*alone, program, *prepare, "--output", form)
    assert (
        "error: image base under apptainer: neither jax nor torch nor tensorflow is installed"
        in prepared.stdout
    )
    sif = users.folder / "results/images/base/apptainer/image.sif"
    shown = users.run("apptainer", "--silent", "exec", sif, "cat", f"/{trainer_image.MARKER}")
    assert json.loads(shown.stdout)["image_id"] == found["image_id"]


def test_archives_of_either_kind_give_the_same_content(here, place):
    saved = here / "saved.tar"
    copy = ["skopeo", "copy", "--quiet", f"oci-archive:{place}/base.tar"]
    subprocess.run([*copy, f"docker-archive:{saved}:base:1"], check=True)
    layers = []
    for source in (place / "base.tar", saved):
        make({"source": str(source)})
        config = oci.read_image("results/images/base/oci")[2]
        layers.append(config["rootfs"]["diff_ids"][:-1])  # less our marker
    assert layers[0] == layers[1]


STRANGER = "dlbench-stranger"


def call(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def stranger(roots, place):
    """The project of an ordinary user without subordinate user ids.

    Its path has spaces in it (apptainer build --sandbox takes no apostrophe).
    """
    if subprocess.run(["id", STRANGER], capture_output=True, check=False).returncode:
        call("useradd", "--create-home", STRANGER)
    for name in ("/etc/subuid", "/etc/subgid"):
        lines = Path(name).read_text().splitlines(keepends=True)
        Path(name).write_text("".join(x for x in lines if not x.startswith(f"{STRANGER}:")))
    folder = place / "clone of a stranger"
    for name in ("workflow_scripts", "envs"):
        shutil.copytree(roots.folder / name, folder / name, ignore=lambda *_: [".venv"])
    call("chown", "--recursive", STRANGER, folder)
    return type(roots)(folder, STRANGER, {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})


@pytest.fixture(scope="module")
def apps(place):
    """Images that root made for all users, without marker: a SIF file and a root folder."""
    folder = place / "apps"
    folder.mkdir()
    fast = "--mksquashfs-args=-comp zstd -Xcompression-level 1"
    call("apptainer", "build", fast, folder / "x.sif", f"oci-archive:{place}/base.tar")
    call("apptainer", "build", "--sandbox", folder / "root", f"oci-archive:{place}/base.tar")
    (folder / "root/etc/shadow").chmod(0)
    return folder


@pytest.mark.one_in(3)
@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud"])
@pytest.mark.parametrize("source", ["x.sif", "root"])
def test_an_image_of_roots_is_taken_by_an_ordinary_user_without_subuids(
    stranger, users, apps, runtime, source
):
    python = users.folder / users.python  # with NumPy, as the workflow's has
    name = f"{runtime}-{source}"
    settings, image = json.dumps({"source": str(apps / source)}), trainer_image.image_path(name)
    program = "workflow_scripts/dlbench"
    make = ("make-image", name, "--settings", settings, "--output", image)
    made = stranger.run(python, program, *make)
    assert made.returncode == 0, made.stdout
    form = f"results/images/{name}/{runtime}.json"
    prepare = ("prepare-image", image, "--runtime", runtime)
    prepared = stranger.run(python, program, *prepare, "--any-packages", "--output", form)
    # Entered, its marker seen, and its Python run.
    assert prepared.returncode == 0, prepared.stdout
    found = json.loads((stranger.folder / form).read_text())
    assert found["image_id"] == json.loads((stranger.folder / image).read_text())["digest"]
    # A SIF of gigabytes is neither unpacked nor packed again for Apptainer.
    rebuilt = "apptainer build" in prepared.stdout
    assert rebuilt == (name == "charliecloud-x.sif")
