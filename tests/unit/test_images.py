"""images: where they come from, whether they are still the same, and what is refused."""

import functools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from image_files import LAYER, OTHER, Blobs, digest, tar

from dlbench import Error, image_forms, image_sources, images, oci, plugins, site, tools
from dlbench.runs import Run

REPOSITORY = Path(__file__).parents[2]
SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x00" + b"content"
TOOLS = (
    "sh", "env", "sed", "mkdir", "touch", "cat", "chmod", "rm", "cp", "ln", "tar", "head"
)  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A workflow's folder, on a machine that has nothing but what shells need."""
    for name in ("envs", "workflow_scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(name, script):
    """Put a program on the path."""
    Path("bin", name).unlink(missing_ok=True)
    Path("bin", name).write_text(f"#!/bin/sh\n{script}\n")
    Path("bin", name).chmod(0o755)


def said():
    return Path("said").read_text()


def archive(path="x.tar", **files):
    blobs = Blobs()
    blobs.index(blobs.image([tar(files or {"bin/sh": b"x"})]))
    Path(path).write_bytes(tar(blobs))
    return path


def root_folder(path="root", marker=None):
    Path(path, "etc").mkdir(parents=True)
    Path(path, "etc/os-release").write_text("ID=test")
    if marker is not None:
        Path(path, images.MARKER).write_text(marker)
    return path


def settings(source, **more):
    return images.settings("x", {"x": {"source": str(source), **more}})


def make(source, **more):
    image_sources.make("x", settings(source, **more), images.image_path("x"))
    return images.read(images.image_path("x"))


# Where they come from.


def test_the_origin_of_an_image_is_seen_from_what_is_there():
    Path("x.sif").write_bytes(SIF)
    sources = {
        "docker://python:3.11": "registry",
        "envs/train": "recipe",
        "x.sif": "sif",
        root_folder(): "folder",
        archive(): "archive",
    }
    assert {source: images.origin(settings(source)) for source in sources} == sources


def test_an_environment_that_is_not_listed_is_built_from_its_folder():
    assert images.settings("train", {})["source"] == "envs/train"
    assert images.settings("train", {"other": {"source": "x"}})["source"] == "envs/train"
    assert images.settings("train", {"train": {"base": "x"}})["base"] == "x"


def test_where_there_is_nothing_it_is_said_what_there_could_be():
    with pytest.raises(Error) as error:
        images.origin(settings("no.sif"))
    assert str(error.value) == (
        "images: source no.sif: expected a SIF file, a root folder, an image archive, a folder "
        "with uv.lock, or docker://NAME; found nothing there"
    )


def test_a_recipe_without_a_base_says_where_it_belongs():
    Path("mine").mkdir()
    Path("mine/uv.lock").touch()
    for content in (None, "[tool]", "no toml ["):
        if content is not None:
            Path("mine/pyproject.toml").write_text(content)
        with pytest.raises(Error, match=r"pyproject\.toml has no base in \[tool\.dlbench\.image\]"):
            images.identity("x", settings("mine"))
    assert images.identity("x", settings("mine", base="debian:12"))


# Whether it is still the same.


@pytest.fixture
def recipe(monkeypatch):
    """A recipe whose files may be changed."""
    shutil.copytree(REPOSITORY / "envs", "own", ignore=lambda *_: [".venv"])
    monkeypatch.setattr(images, "RECIPES", Path("own"))
    return functools.partial(images.identity, "x")


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
        images.identity("x", settings(name, **more))
        for name in ("docker://a", "docker://b")
        for more in ({}, {"digest": pin})
    ]
    assert found == ["docker://a@any", f"docker://a@{pin}", "docker://b@any", f"docker://b@{pin}"]


def sif(path="x.sif", content=b""):
    """A file that a fake Apptainer takes for a SIF without a marker."""
    program(
        "apptainer", 'echo "$@" >> said; case "$*" in *" env") echo PATH=/opt/bin;; *) exit 1; esac'
    )
    Path(path).write_bytes(SIF + content)
    return path


def change(path):
    path = Path(path, "etc/os-release") if Path(path).is_dir() else Path(path)
    path.write_bytes(path.read_bytes().replace(b"e", b"E"))


@pytest.mark.parametrize("source", [sif, root_folder, archive])
def test_only_another_content_makes_a_file_or_folder_another_image(source, monkeypatch):
    source = source()
    made = make(source)
    read = []
    monkeypatch.setattr(images, "sha256", lambda path: read.append(path) or oci.sha256(path))
    wanted = settings(source)
    assert images.digest("x", wanted) == made.digest
    assert read == []  # nothing was touched
    for path in (Path(source), *Path(source).rglob("*")):
        os.utime(path, (1, 1))
    assert images.digest("x", wanted) == made.digest
    assert read
    change(source)
    assert images.digest("x", wanted) is None


def test_another_path_with_the_same_content_is_the_same_image():
    made = make(archive("a.tar"))
    shutil.copy("a.tar", "b.tar")
    assert images.digest("x", settings("b.tar")) == made.digest


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
    before = images.identity("x", settings(root))
    changed(root)
    assert images.identity("x", settings(root)) != before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_only_root_may_read_in_a_folder_is_no_obstacle():
    Path(root_folder(), "etc/shadow").touch(mode=0)
    assert images.identity("x", settings("root"))


def test_without_the_source_nothing_is_known_and_nothing_claimed():
    make(archive())
    Path("x.tar").unlink()
    assert images.identity("x", settings("x.tar")) is None
    assert images.digest("x", settings("x.tar")) is None


def test_an_image_that_is_not_made_has_no_digest():
    assert images.digest("x", settings(archive())) is None


@pytest.mark.parametrize("content", ["", "[]", "{", "3"])
def test_a_damaged_description_is_none(content):
    make(archive())
    Path(images.image_path("x")).write_text(content)
    assert images.digest("x", settings("x.tar")) is None
    with pytest.raises(Error, match=r"image\.json is missing or damaged: make the image again"):
        images.read(images.image_path("x"))
    with pytest.raises(Error, match="is missing or damaged"):
        images.read_form("results/images/x/podman.json")


# Making.


def test_an_archive_is_named_by_its_manifest_and_gets_the_marker():
    blobs = Blobs()
    blobs.index(entry := blobs.image([LAYER]))
    Path("x.tar").write_bytes(tar(blobs))
    made = make("x.tar")
    assert (made.kind, made.digest, made.marked) == ("oci", entry["digest"], True)
    assert made.image_id == made.digest
    assert made.environment == {"PATH": "/bin"}
    *_, layer = oci.manifest(made.path)[1]["layers"]
    content = (made.path / "blobs" / layer["digest"].replace(":", "/")).read_bytes()
    assert json.dumps({"image_id": made.digest, "image": "x"}).encode() in content


def test_a_folder_is_used_where_it_lies_with_a_marker_beside_it():
    made = make(root_folder())
    assert (made.kind, made.path, made.marked) == ("folder", Path("root").absolute(), False)
    assert made.image_id == made.digest
    marker = json.loads((made.marker / images.MARKER).read_text())
    assert marker == {"image_id": made.digest, "image": "x"}
    assert not Path("root", images.MARKER).exists()


def test_the_marker_that_an_image_has_is_kept():
    made = make(root_folder(marker='{"image_id": "build-1"}'))
    assert (made.image_id, made.marked) == ("build-1", True)


@pytest.mark.parametrize("marker", ["", "{}", "[]", "no json", '{"image": "x"}'])
def test_a_marker_that_says_nothing_is_none(marker):
    made = make(root_folder(marker=marker))
    assert (made.image_id, made.marked) == (made.digest, False)


@pytest.mark.parametrize("marker", ['{"image_id": "build-1"}', "[]"])
def test_apptainer_is_asked_for_the_marker_and_the_environment_of_a_sif(marker):
    path = sif()
    program("apptainer", f"""case "$*" in *" env") echo PATH=/opt/bin; echo A=1;;
        "--silent exec {Path.cwd()}/x.sif cat /etc/dlbench-image.json") echo '{marker}';;
        *) exit 1;; esac""")  # fmt: skip
    made = make(path)
    assert made.kind == "sif"
    assert made.digest == f"sha256:{oci.sha256(path)}"
    assert made.marked == ("build-1" in marker)
    assert made.environment == {"PATH": "/opt/bin"}


def test_a_sif_without_apptainer_is_refused():
    Path("x.sif").write_bytes(SIF)
    with pytest.raises(Error, match=r"x\.sif is a SIF file; apptainer or singularity is not on"):
        make("x.sif")


@pytest.mark.parametrize("source", [archive, root_folder])
def test_an_image_with_another_digest_than_the_pinned_one_is_refused_with_both(source):
    source = source()
    made = make(source)
    assert make(source, digest=made.digest).digest == made.digest
    pin = "sha256:" + "0" * 64
    with pytest.raises(Error) as error:
        make(source, digest=pin)
    assert str(error.value) == (
        f"image x: expected the pinned digest {pin}, found {made.digest} at {source}: it was "
        "replaced, or the pin is old"
    )


def test_a_pin_that_came_later_has_the_image_looked_at_again():
    made = make(archive())
    assert images.digest("x", settings("x.tar", digest=made.digest)) == made.digest
    assert images.digest("x", settings("x.tar", digest="sha256:" + "0" * 64)) is None


def test_an_archive_for_another_machine_is_refused():
    blobs = Blobs()
    Path("x.tar").write_bytes(tar(blobs.index(blobs.image([LAYER], architecture=OTHER))))
    with pytest.raises(Error, match=f"the image is for the architecture {OTHER}; this machine is"):
        make("x.tar")


def layout_of(blobs):
    for name, content in blobs.items():
        path = Path("made", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def engine(name, digest_="sha256:none"):
    """An engine that pushes a layout made by hand."""
    program(name, f"""echo "$(basename $0) $*" >> said
        for last; do :; done
        case $1 in push|copy) last=${{last#oci:}}; cp -r made/. "${{last%:*}}";;
        inspect) echo a warning >&2; echo {digest_};;
        save) tar -C made -cf "${{2#--output=}}" .;; esac""")  # fmt: skip
    Path("bin/basename").exists() or Path("bin/basename").symlink_to("/usr/bin/basename")


@pytest.fixture
def pushed():
    blobs = Blobs()
    layout_of(blobs.index(entry := blobs.image([LAYER])))
    return entry["digest"]


def test_skopeo_pulls_what_it_has_asked_the_digest_of(pushed):
    engine("skopeo", pushed)
    made = make("docker://site:5000/a/b:1.0")
    assert (made.kind, made.digest) == ("oci", pushed)
    assert said().splitlines() == [
        "skopeo inspect --format={{.Digest}} docker://site:5000/a/b:1.0",
        f"skopeo copy docker://site:5000/a/b@{pushed} oci:results/images/x/oci:image",
    ]


@pytest.mark.parametrize("how", ["name", "key"])
def test_a_pinned_image_is_pulled_by_its_digest(pushed, how):
    engine("skopeo")
    pin = "sha256:" + "1" * 64
    made = make(f"docker://a@{pin}") if how == "name" else make("docker://a", digest=pin)
    # That of the list of architectures, which the registry knows it by.
    assert made.digest == pin
    assert said() == f"skopeo copy docker://a@{pin} oci:results/images/x/oci:image\n"


def test_a_name_pinned_to_one_digest_and_a_key_to_another_is_refused(pushed):
    engine("skopeo")
    with pytest.raises(Error, match=r"expected the pinned digest sha256:2+, found sha256:1+ at"):
        make(f"docker://a@sha256:{'1' * 64}", digest=f"sha256:{'2' * 64}")


@pytest.mark.parametrize("name", ["podman", "buildah", "docker"])
def test_without_skopeo_an_engine_pulls(pushed, name):
    engine(name)
    assert make("docker://a:1").digest == pushed
    first, second = said().splitlines()
    assert first == f"{name} pull a:1"
    assert second == (
        "docker save --output=results/images/x/saved.tar a:1"
        if name == "docker"
        else f"{name} push a:1 oci:results/images/x/oci:image"
    )


def test_where_nothing_can_pull_it_is_said_what_could():
    with pytest.raises(Error) as error:
        make("docker://a")
    assert str(error.value) == (
        "docker://a cannot be pulled: none of skopeo, buildah, podman, docker and apptainer or "
        "singularity is on the path of this machine"
    )


def test_an_engine_builds_with_the_base_and_the_binds_that_are_given(pushed):
    engine("podman")
    made = make("envs/train", base="debian:12", build_binds=["/ca che:/mnt"])
    assert made.digest == pushed
    assert made.image_id.startswith("build-")
    build, push, remove = said().splitlines()
    assert build == (
        "podman build --volume=/ca che:/mnt --build-arg=ENVIRONMENT=x "
        f"--build-arg=IMAGE_ID={made.image_id} --build-arg=BASE=debian:12 "
        "--file=envs/Containerfile --tag=localhost/dlbench/build-x envs/train"
    )
    assert push == "podman push localhost/dlbench/build-x oci:results/images/x/oci:image"
    assert remove == "podman rmi localhost/dlbench/build-x"


def test_a_base_that_is_a_file_is_given_as_an_archive(pushed):
    engine("podman")
    make("envs/train", base=archive("base.tar"))
    assert f"--build-arg=BASE=oci-archive:{Path.cwd()}/base.tar" in said()


def test_two_builds_of_one_recipe_are_two_images(pushed):
    engine("podman")
    assert make("envs/train").image_id != make("envs/train").image_id


def test_where_nothing_can_build_it_is_said_what_else_can_be_done():
    with pytest.raises(Error) as error:
        make("envs/train")
    assert "image x cannot be built: none of buildah, podman, docker and apptainer" in str(
        error.value
    )
    assert "build it elsewhere and give it as a file" in str(error.value)
    assert "images: {x: {source: ...}}" in str(error.value)


# Commands.


def test_what_a_failed_command_said_is_in_the_error(capfd):
    program("tool", "echo one; echo two >&2; echo; echo three; exit 4")
    with pytest.raises(Error) as error:
        tools.run(["tool", "a"])
    assert str(error.value) == "tool failed (exit code 4): one | two | three"
    shown = capfd.readouterr().err
    assert shown == "+ tool a\none\ntwo\n\nthree\n"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("write /x: no space left on device", "a disk is full; APPTAINER_TMPDIR"),
        (
            "mkdir cache: Permission denied",
            "a folder may not be there or not be writable: APPT",
        ),
        ("exec /bin/sh: exec format error", "the image is for another kind of processor"),
        ("unauthorized: authentication required", "the registry wants a login, or the name is mi"),
    ],
)
def test_a_known_failure_has_its_likely_cause(said, hint):
    program("tool", f"echo '{said}'; echo a; echo b; echo c; echo d; echo e; exit 255")
    with pytest.raises(Error) as error:
        tools.run(["tool"])
    assert f"exit code 255): b | c | d | e; {hint}" in str(error.value)


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(Error, match="no-such-tool is not on the path of this machine"):
        tools.run(["no-such-tool", "x"])


def test_bytes_that_are_no_text_do_not_hurt():
    program("tool", "printf '\\377\\n'")
    assert tools.run(["tool"]) == "\ufffd"


# Looking at it from inside.

INSIDE = {
    "marker": {"image_id": "build-1"},
    "python": "/opt/dlbench/bin/python3",
    "python_version": "3.11.7",
    "architecture": "x86_64",
    "libc": "glibc 2.36",
    "packages": {"tensorflow": "2.18.1", "keras": "3.8.0", "numpy": "2.0", "psutil": "6",
                 "horovod": None},
    "mpirun": None,
    "mpi": None,
}  # fmt: skip


def ch_run(before=""):
    """A runtime that contains nothing: the program runs on this machine."""
    program("ch-run", f"""[ "$1" = --version ] && {{ echo 0.31; echo more; exit; }}
        {before}
        while [ "$1" != -- ]; do shift; done; shift; exec "$@" """)  # fmt: skip


def interpreter(said, code=0):
    """What takes the place of Python inside."""
    Path("said.json").write_text(said if isinstance(said, str) else json.dumps(said))
    program("fake-python", f"cat {Path.cwd()}/said.json; echo its message >&2; exit {code}")
    return "fake-python"


def prepare(python, image=None, runtime="charliecloud", **chosen):
    image = image or make(root_folder(marker='{"image_id": "build-1"}'))
    output = Path("results/images/x/form.json")
    image_forms.prepare(image, runtime, chosen, python, False, output)
    return images.read_form(output)


def test_what_was_found_inside_is_written_down():
    ch_run()
    form = prepare(interpreter(INSIDE))
    assert form["image"] == "x"
    assert form["image_id"] == "build-1"
    assert form["digest"] == images.read(images.image_path("x")).digest
    assert (form["runtime"], form["runtime_version"]) == ("charliecloud", "0.31")
    assert form["prepared"] == "results/images/x/form/root"
    assert form["packages"]["horovod"] is None
    assert "marker" not in form
    assert Path(form["prepared"], "etc/os-release").is_file()


def test_what_ran_on_this_machine_is_found_out():
    ch_run()
    with pytest.raises(Error) as error:
        prepare(sys.executable)
    assert str(error.value) == (
        "image x under charliecloud: /etc/dlbench-image.json is not seen from inside: what runs "
        "there is not in the image, but on the files of this machine"
    )
    assert not Path("results/images/x/form.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"marker": {"image_id": "build-2"}}, "expected the image build-1, found itself in buil"),
        ({"marker": {}}, "is not seen from inside"),
        ({"marker": {"image": "x"}}, "expected the image build-1, found itself in None"),
        ({"python_version": "3.9.18"}, "needs Python 3.10 or newer, has 3.9.18"),
        ({"python_version": "2.7.18+"}, "needs Python 3.10 or newer, has 2.7.18+"),
        (
            {"packages": INSIDE["packages"] | {"tensorflow": None}},
            "tensorflow is not installed for /opt/dlbench/bin/python3",
        ),
        ({"packages": INSIDE["packages"] | {"numpy": None}}, "numpy is not installed for /opt/dlb"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_be_used_is_refused_with_the_reason(changes, message):
    ch_run()
    with pytest.raises(Error) as error:
        prepare(interpreter(INSIDE | changes))
    assert str(error.value).startswith("image x under charliecloud: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("said", "code"), [("no json", 0), ("", 0), (json.dumps(INSIDE), 3), ("Segmentation", 139)]
)
def test_an_interpreter_that_does_not_start_is_quoted(said, code):
    ch_run()
    with pytest.raises(Error) as error:
        prepare(interpreter(said, code))
    message = str(error.value)
    assert f"Python could not be started inside (exit code {code}); it said: " in message
    assert "its message" in message
    assert message.endswith("is there a python3 in it? (images: python names another)")


def test_an_image_without_python_is_said_to_have_none():
    ch_run()
    with pytest.raises(Error, match=r"Python could not be started inside \(exit code 127\)"):
        prepare("no-such-python")


def test_what_this_machine_says_of_its_programs_is_not_seen_inside(monkeypatch):
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "OPAL_PREFIX", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/host")
    monkeypatch.setenv("HARMLESS", "x")
    ch_run("env > seen")
    prepare(interpreter(INSIDE))
    seen = Path("seen").read_text()
    assert "/host" not in seen
    assert "HARMLESS=x" in seen


def test_messages_before_the_last_line_do_no_harm():
    ch_run()
    assert prepare(interpreter("Welcome!\n\n" + json.dumps(INSIDE)))["python_version"] == "3.11.7"


def test_a_runtime_that_is_not_there_is_named_first():
    with pytest.raises(Error, match="ch-run is not on the path of this machine"):
        prepare("python3")
    with pytest.raises(Error, match="apptainer or singularity is not on the path"):
        prepare("python3", images.read(images.image_path("x")), "apptainer")


def test_a_form_that_cannot_be_made_has_the_words_of_what_failed():
    ch_run()
    program("cp", "echo cp: no space left on device; exit 1")
    with pytest.raises(Error, match=r"cp failed \(exit code 1\): .*; a disk is full"):
        prepare(interpreter(INSIDE))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_that_are_not_writable_are_made_anew():
    ch_run()
    root_folder(marker='{"image_id": "build-1"}')
    Path("root/etc").chmod(0o555)
    image = make("root")
    for _ in range(2):
        prepare(interpreter(INSIDE), image)
        Path("results/images/x/form/root/etc").chmod(0o555)


def test_a_folder_without_a_marker_gets_it_in_the_copy_only():
    ch_run()
    image = make(root_folder())
    prepare(interpreter(INSIDE | {"marker": {"image_id": image.image_id}}), image)
    marker = json.loads(Path("results/images/x/form/root", images.MARKER).read_text())
    assert marker["image_id"] == image.digest
    assert not Path("root", images.MARKER).exists()


@pytest.mark.parametrize(
    ("package", "there"), [("horovod", True), ("horovod", False), (None, False)]
)
def test_a_package_that_a_strategy_needs_must_be_in_the_image(package, there):
    run = images_run(strategy="horovod" if package else "single")
    form = {"image": "x", "digest": "sha256:1", "packages": {"horovod": "0.28" if there else None}}
    if package and not there:
        with pytest.raises(images.Lacking) as error:
            images.see_packages(run, form)
        assert str(error.value) == "horovod is not in the image x (sha256:1)"
    else:
        images.see_packages(run, form)


def images_run(**changes):
    values = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5}
    return Run(**values, runtime="podman", environment="x", **changes)


def test_a_run_knows_its_form_before_it_is_made():
    run = images_run()
    assert images.form_path(run) == "results/images/x/podman.json"
    assert site.skip_reason(run, site.Devices("cpu", None, 2)) == (
        "runtime podman: podman is not on the path of this machine"
    )


# With the real thing.


@pytest.mark.skipif(not shutil.which("apptainer"), reason="apptainer is not installed")
def test_apptainer_puts_the_marker_into_a_folder_without_one(monkeypatch):
    """With a root that has nothing but a file: what is packed is looked at, nothing is run."""
    monkeypatch.setenv("PATH", os.environ["PATH"] + os.pathsep + "/usr/bin:/bin:/usr/sbin:/sbin")
    image = make(root_folder())
    module = plugins.load("runtimes", "apptainer")
    Path("place").mkdir()
    for command in module.prepare(image, "place", {}):
        tools.run(command)
    tools.run(["apptainer", "build", "--force", "--sandbox", "again", "place/image.sif"])
    marker = json.loads(Path("again", images.MARKER).read_text())
    assert marker == {"image_id": image.digest, "image": "x"}
    assert Path("again/etc/os-release").read_text() == "ID=test"


def test_the_digest_of_an_archive_is_that_of_its_manifest_not_of_the_file():
    assert make(archive()).digest != digest(Path("x.tar").read_bytes())
