"""trainer_image: sources of images, and whether they have changed."""

import functools
import os
import shutil
from pathlib import Path

import pytest

import describe_image
from dlbench import Error
from dlbench.common import files
from dlbench.images import oci, trainer_image
from dlbench.study import trainer_environments
from dlbench.trainer.containment import IMAGE_MARKER
from support.images.image_files import SIF, archive, make, root_folder, settings, sif
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.usefixtures("place")


# Where they come from.


def test_the_origin_of_an_image_is_seen_from_what_is_there():
    Path("x.sif").write_bytes(SIF)
    sources = {"docker://python:3.11": "registry", "envs/train": "recipe", "x.sif": "sif"}
    sources |= {root_folder(): "folder", archive(): "archive"}
    assert {source: trainer_image.origin(settings(source)) for source in sources} == sources


def test_an_environment_that_is_not_listed_is_built_from_its_folder():
    assert trainer_image.settings("train", {})["source"] == "envs/train"
    assert trainer_image.settings("train", {"other": {"source": "x"}})["source"] == "envs/train"
    assert trainer_image.settings("train", {"train": {"base": "x"}})["base"] == "x"


def test_where_there_is_nothing_it_is_said_what_there_could_be():
    with pytest.raises(Error) as error:
        trainer_image.origin(settings("no.sif"))
    assert str(error.value) == (
        "images: source no.sif: expected a SIF file, a root folder, an image archive, an OCI "
        "layout, a folder with uv.lock, or docker://NAME; found nothing"
    )
    Path("home/me").mkdir(parents=True)
    with pytest.raises(Error, match="found a folder that is none of these"):
        trainer_image.origin(settings("home"))


def test_a_recipe_without_a_base_says_where_it_belongs():
    Path("mine").mkdir()
    Path("mine/uv.lock").touch()
    for content in (None, "[tool]", "no toml ["):
        if content is not None:
            Path("mine/pyproject.toml").write_text(content)
        with pytest.raises(Error, match=r"pyproject\.toml has no base in \[tool\.dlbench\.image\]"):
            trainer_image.identity("x", settings("mine"))
    assert trainer_image.identity("x", settings("mine", base="debian:12"))


def test_the_program_inside_an_image_looks_for_the_marker_at_the_path_of_the_trainer():
    assert describe_image.MARKER == str(IMAGE_MARKER) == f"/{trainer_image.MARKER}"


# Whether it is still the same.


@pytest.fixture
def recipe(monkeypatch):
    shutil.copytree(REPOSITORY / "envs", "own", ignore=lambda *_: [".venv"])
    monkeypatch.setattr(trainer_environments, "ENVIRONMENTS", Path("own"))
    return functools.partial(trainer_image.identity, "x")


@pytest.mark.parametrize("file", ["Containerfile", "apptainer.def", "train/uv.lock"])
def test_a_recipe_is_another_one_when_one_of_its_files_is(recipe, file):
    before = recipe(settings("own/train"))
    os.utime(f"own/{file}", (1, 1))
    assert recipe(settings("own/train")) == before
    with open(f"own/{file}", "a") as content:
        content.write("# more\n")
    assert recipe(settings("own/train")) != before


def test_a_recipe_is_another_one_with_another_base(recipe):
    before = recipe(settings("own/train"))
    assert recipe(settings("own/train", base="debian:12")) != before
    file = Path("own/train/pyproject.toml")
    file.write_text(file.read_text().replace("slim-bookworm", "slim-trixie"))
    assert recipe(settings("own/train")) != before
    assert recipe(settings("own/train-cuda")) != before
    # What a machine needs to build is no part of the image.
    before = recipe(settings("own/train"))
    assert recipe(settings("own/train", build_binds=["/cache:/mnt"])) == before


def test_a_pulled_image_is_another_one_with_another_name_or_pin():
    pin = "sha256:" + "0" * 64
    found = [
        trainer_image.identity("x", settings(name, **more))
        for name in ("docker://a", "docker://b")
        for more in ({}, {"digest": pin})
    ]
    assert found == ["docker://a@any", f"docker://a@{pin}", "docker://b@any", f"docker://b@{pin}"]


def change(path):
    path = Path(path, "etc/os-release") if Path(path).is_dir() else Path(path)
    path.write_bytes(path.read_bytes().replace(b"e", b"E"))


@pytest.mark.parametrize("source", [sif, root_folder, archive])
def test_only_another_content_makes_a_file_or_folder_another_image(source, monkeypatch):
    source = source()
    made = make(source)
    read = []
    monkeypatch.setattr(oci, "sha256", lambda path: read.append(path) or files.sha256(path))
    wanted = settings(source)
    assert trainer_image.digest("x", wanted) == made.digest
    assert read == []  # nothing was touched
    for path in (Path(source), *Path(source).rglob("*")):
        os.utime(path, (1, 1))
    assert trainer_image.digest("x", wanted) == made.digest
    assert read
    change(source)
    assert trainer_image.digest("x", wanted) is None


def test_another_path_with_the_same_content_is_the_same_image():
    made = make(archive("a.tar"))
    shutil.copy("a.tar", "b.tar")
    assert trainer_image.digest("x", settings("b.tar")) == made.digest


@pytest.mark.parametrize(
    "changed",
    [
        lambda root: (root / "etc/new").touch(),
        lambda root: (root / "etc/os-release").unlink(),
        lambda root: (root / "etc/os-release").chmod(0o755),
        lambda root: (root / "etc/os-release").rename(root / "etc/other"),
        lambda root: [(root / "link").unlink(), (root / "link").symlink_to("etc/other")],
        lambda root: (root / "empty").mkdir(),
    ],
    ids=["new", "deleted", "mode", "name", "link", "folder"],
)
def test_a_folder_is_another_image_by_names_modes_and_links_too(changed):
    root = Path(root_folder())
    (root / "link").symlink_to("etc/none")
    before = trainer_image.identity("x", settings(root))
    changed(root)
    assert trainer_image.identity("x", settings(root)) != before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_only_root_may_read_in_a_folder_is_no_obstacle():
    Path(root_folder(), "etc/shadow").touch(mode=0)
    assert trainer_image.identity("x", settings("root"))


def test_without_the_source_or_the_image_nothing_is_known_and_nothing_claimed():
    assert trainer_image.digest("x", settings(archive())) is None
    make("x.tar")
    Path("x.tar").unlink()
    assert trainer_image.identity("x", settings("x.tar")) is None
    assert trainer_image.digest("x", settings("x.tar")) is None


@pytest.mark.parametrize("content", ["", "[]"])
def test_a_damaged_description_is_none(content):
    make(archive())
    Path(trainer_image.image_path("x")).write_text(content)
    assert trainer_image.digest("x", settings("x.tar")) is None
    with pytest.raises(Error, match=r"image\.json is missing or damaged: make the image again"):
        trainer_image.read(trainer_image.image_path("x"))
    with pytest.raises(Error, match="is missing or damaged"):
        trainer_image.read_form("results/images/x/podman.json")
