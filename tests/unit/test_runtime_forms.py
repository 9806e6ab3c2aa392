"""runtimes: the commands that bring an image to the form of a runtime, and where that lies."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from contained_runs import CHOSEN, NAMES, PLACE, arguments, image, load

from dlbench import engines, images

MARKER = f"{Path.cwd()}/results/images/train/marker"
ROOT = f"{PLACE}/root"


def prepare(name, *given, **chosen):
    module = load(name)
    return module.prepare(image(*given), PLACE, CHOSEN.get(name, {}) | chosen, False)


@pytest.fixture
def only_apptainer(programs):
    programs("apptainer", "")


ZSTD = "--mksquashfs-args=-comp zstd -Xcompression-level 3"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("oci",), ["apptainer", "build", "--force", ZSTD, f"{PLACE}/image.sif",
                    "oci:results/images/train/oci"]),
        (("sif",), ["ln", "--symbolic", "/big/x.sif", f"{PLACE}/image.sif"]),
        (("folder",), ["ln", "--symbolic", "/big/root", f"{PLACE}/image.sif"]),
        (("sif", False), ["apptainer", "build", "--force", ZSTD, "--build-arg=IMAGE=/big/x.sif",
                          f"--build-arg=MARKER={MARKER}", f"{PLACE}/image.sif", "envs/marked.def"]),
        (("folder", False), ["apptainer", "build", "--force", ZSTD, "--build-arg=IMAGE=/big/root",
                             f"--build-arg=MARKER={MARKER}", f"{PLACE}/image.sif",
                             "envs/marked.def"]),
    ],
)  # fmt: skip
def test_apptainer_takes_a_sif_or_folder_as_it_is_unless_it_must_be_marked(
    only_apptainer, given, words
):
    assert prepare("apptainer", *given) == [words]


def test_singularity_is_not_told_how_to_pack(programs):
    programs("singularity", "")
    assert prepare("apptainer", "oci") == [
        ["singularity", "build", "--force", f"{PLACE}/image.sif", "oci:results/images/train/oci"]
    ]


def test_podman_pulls_the_layout_under_a_name_with_the_digest():
    (command,) = prepare("podman", "oci")
    assert command[-2:] == [
        "oci:results/images/train/oci", "localhost/dlbench/train:0123456789ab"
    ]  # fmt: skip
    assert load("podman").prepared(image(), PLACE, {}) == command[-1]


def test_names_in_a_store_have_no_capitals():
    assert engines.name(image(name="My.Image")) == "localhost/dlbench/my.image:0123456789ab"


@pytest.mark.parametrize("line", ["Loaded image: image:latest", "Loaded image ID: sha256:abc"])
def test_what_docker_loads_is_given_our_name(programs, tmp_path, monkeypatch, line):
    pack, named, clear = prepare("docker", "oci")
    assert pack == [
        "tar", "--directory=results/images/train/oci", "--create", f"--file={PLACE}/image.tar", "."
    ]  # fmt: skip
    assert clear == ["rm", "-rf", f"{PLACE}/image.tar", ROOT]
    script = f"""case $1 in load) echo '{line}';; *) printf '%s\\0' "$@" > "$SAID";; esac"""
    programs("docker", script)
    said = arguments(named, tmp_path, monkeypatch)
    assert said == ["tag", line.split()[-1], engines.name(image())]


def test_a_failure_of_docker_load_is_one_of_ours(programs):
    programs("docker", "exit 5")
    assert subprocess.run(prepare("docker", "oci")[1], check=False).returncode == 5


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_engines_import_a_folder_and_lay_the_marker_over_it(engine):
    pack, load_it, _ = prepare(engine, "folder", False)
    assert pack[-3:] == [".", f"--directory={MARKER}", "."]
    assert pack[1] == "--directory=/big/root"
    assert load_it == [engine, "import", f"{PLACE}/image.tar", engines.name(image())]
    assert prepare(engine, "folder")[0] == pack[:-2]


def test_a_sif_is_unpacked_first_where_others_take_it(only_apptainer):
    unpack = ["apptainer", "build", "--force", "--sandbox", ROOT, "/big/x.sif"]
    for name in ("podman", "docker", "charliecloud", "udocker"):
        assert prepare(name, "sif")[0] == unpack


def test_charliecloud_writes_to_a_copy_of_a_users_folder_only():
    copy, marker, chmod = prepare("charliecloud", "folder", False)
    assert copy == ["cp", "--archive", "--reflink=auto", "/big/root", ROOT]
    assert marker == ["cp", "--recursive", f"{MARKER}/.", ROOT]
    assert chmod == ["chmod", "--recursive", "u+rwX", ROOT]


def test_charliecloud_unpacks_a_layout_with_what_is_there(programs):
    pull, convert, _ = prepare("charliecloud", "oci")
    assert pull[-2:] == ["oci:results/images/train/oci", "localhost/dlbench/train"]
    assert convert == [
        "ch-convert", "-i", "podman", "-o", "dir", "localhost/dlbench/train", ROOT
    ]  # fmt: skip
    programs("apptainer", "")
    assert prepare("charliecloud", "oci")[0] == [
        "apptainer", "build", "--force", "--sandbox", ROOT, "oci:results/images/train/oci"
    ]  # fmt: skip


def test_charliecloud_gets_the_libraries_of_the_gpus_once():
    commands = load("charliecloud").prepare(image("folder"), PLACE, {}, True)
    assert commands[-1] == ["ch-fromhost", "--nvidia", ROOT]


@pytest.mark.parametrize("gpus", [False, True])
def test_udocker_loads_names_and_sets_up_one_container(user, gpus):
    where = Path(PLACE).absolute()
    udocker = [
        "env", f"UDOCKER_CONTAINERS={where}/containers", f"UDOCKER_REPOS={where}/repos",
        f"UDOCKER_LAYERS={where}/layers", "udocker",
    ]  # fmt: skip
    archive = f"{PLACE}/image.tar"
    nvidia = [[*udocker, "setup", "--nvidia", "--force", "dlbench"]] if gpus else []
    setup = [*udocker, "setup", "--execmode=P2", "dlbench"]
    clear = ["rm", "-rf", archive, f"{PLACE}/layers", ROOT]
    module = load("udocker")
    assert module.prepare(image(), PLACE, {"execmode": "P2"}, gpus) == [
        ["tar", "--directory=results/images/train/oci", "--create", f"--file={archive}", "."],
        [*udocker, "load", "-i", archive, "dlbench"],
        [*udocker, "create", "--name=dlbench", "dlbench:image"],
        setup, *nvidia, clear,
    ]  # fmt: skip
    assert module.prepare(image("folder", False), PLACE, {"execmode": "P2"}, gpus) == [
        ["tar", "--directory=/big/root", "--create", f"--file={archive}", ".",
         f"--directory={MARKER}", "."],
        [*udocker, "import", "--tocontainer", "--name=dlbench", archive],
        setup, *nvidia, clear,
    ]  # fmt: skip


def test_the_marker_lies_over_what_a_folder_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("big/root/etc").mkdir(parents=True)
    Path("big/root/etc/hosts").write_text("mine")
    Path("big/root", images.MARKER).write_text("{}")
    marker = Path("results/images/train/marker", images.MARKER)
    marker.parent.mkdir(parents=True)
    marker.write_text('{"image_id": "x"}')
    given = images.Image("train", "folder", Path("big/root"), "sha256:0", "x", False, {})
    pack, *_ = load("udocker").prepare(given, str(tmp_path), {"execmode": "P1"})
    subprocess.run(pack, check=True)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", "image.tar", "-C", "out"], check=True)
    assert json.loads(Path("out", images.MARKER).read_text()) == {"image_id": "x"}
    assert Path("out/etc/hosts").read_text() == "mine"


def test_one_form_serves_all_runs_that_differ_in_how_they_start_only():
    assert [load(name).form(CHOSEN.get(name, {})) for name in NAMES] == [
        "apptainer", "charliecloud", "docker", "podman", "udocker-P2"
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_where_a_form_lies_is_known_before_it_is_made(name):
    made = load(name).prepared(image(), PLACE, {})
    if name in ("docker", "podman"):
        assert made == engines.name(image())
    else:
        assert made.endswith(("form/image.sif", "form/root", f"{os.sep}form"))
