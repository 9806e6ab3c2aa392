"""runtimes: the commands that convert an image to a runtime's form, and the path of the form."""

import json
import os
import platform
import stat
import subprocess
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import tools
from dlbench.images import oci, trainer_image
from dlbench.images.image import Image
from dlbench.images.runtimes import BUILD, _engines, marker_command
from support.images.contained_runs import CHOSEN, NAMES, PLACE, arguments, image, load
from support.images.image_files import LAYER, Blobs

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
    ("given", "command"),
    [
        (("oci",), ["apptainer", *BUILD, ZSTD, f"{PLACE}/image.sif",
                    "oci:results/images/train/oci"]),
        (("sif",), ["ln", "--symbolic", "/big/x.sif", f"{PLACE}/image.sif"]),
        (("folder",), ["ln", "--symbolic", "/big/root", f"{PLACE}/image.sif"]),
    ],
)  # fmt: skip
def test_apptainer_takes_a_sif_or_folder_as_it_is_unless_it_must_be_marked(
    only_apptainer, given, command
):
    assert prepare("apptainer", *given) == [command]


def test_a_sif_without_a_marker_gets_it_as_a_partition_and_is_not_built_anew(
    only_apptainer, monkeypatch
):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    copy, _, squash, add, _ = prepare("apptainer", "sif", False)
    sif, overlay = f"{PLACE}/image.sif", f"{PLACE}/marker.squashfs"
    assert copy == ["cp", "--reflink=auto", "/big/x.sif", sif]
    assert squash[:3] == ["mksquashfs", MARKER, overlay]
    # Overlay, squashfs, for arm64, in the group of the image's own partition.
    numbers = ["--datatype=4", "--parttype=4", "--partfs=1", "--groupid=1", "--partarch=4"]
    assert add == ["apptainer", "sif", "add", *numbers, sif, overlay]
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(Error, match="processors of the kind s390x get no marker"):
        prepare("apptainer", "sif", False)


def test_singularity_is_not_told_how_to_pack(programs):
    programs("singularity", "")
    assert prepare("apptainer", "oci") == [
        ["singularity", *BUILD, f"{PLACE}/image.sif", "oci:results/images/train/oci"]
    ]


def test_podman_pulls_the_layout_under_a_name_with_the_digest():
    (command,) = prepare("podman", "oci")
    assert command[-2:] == ["oci:results/images/train/oci", "localhost/dlbench/train:0123456789ab"]
    assert load("podman").prepared(image(), PLACE, {}) == command[-1]
    # Names in a store have no capitals.
    assert _engines.name(image(name="My.Image")) == "localhost/dlbench/my.image:0123456789ab"


@pytest.mark.parametrize("line", ["Loaded image: image:latest", "Loaded image ID: sha256:abc"])
def test_what_docker_loads_is_given_our_name(programs, tmp_path, monkeypatch, line):
    pack, named, clear = prepare("docker", "oci")
    folder = "--directory=results/images/train/oci"
    assert pack == ["tar", folder, "--create", f"--file={PLACE}/image.tar", "."]
    assert clear == ["rm", "-rf", f"{PLACE}/image.tar", ROOT]
    script = f"""case $1 in load) echo '{line}';; *) printf '%s\\0' "$@" > "$SAID";; esac"""
    programs("docker", script)
    output = arguments(named, tmp_path, monkeypatch)
    assert output == ["tag", line.split()[-1], _engines.name(image())]
    programs("docker", "exit 5")
    assert subprocess.run(named, check=False).returncode == 5


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_engines_import_a_folder_and_lay_the_marker_over_it(engine):
    for marked in (False, True):
        pack, load_it, _ = prepare(engine, "folder", marked)
        assert pack[-3:] == ["/big/root", f"{PLACE}/image.tar", MARKER]
        assert ("--append" in pack[2]) is not marked
        assert load_it == [engine, "import", f"{PLACE}/image.tar", _engines.name(image())]


def test_a_sif_is_unpacked_first_where_others_take_it(only_apptainer):
    unpack = ["apptainer", *BUILD, "--sandbox", ROOT, "/big/x.sif"]
    for name in ("podman", "docker", "charliecloud", "udocker"):
        assert prepare(name, "sif")[0] == unpack


def test_charliecloud_unpacks_a_layout_with_what_is_there(programs):
    pull, convert, _ = prepare("charliecloud", "oci")
    assert pull[-2:] == ["oci:results/images/train/oci", "localhost/dlbench/train"]
    assert convert == ["ch-convert", "-i", "podman", "-o", "dir", "localhost/dlbench/train", ROOT]
    programs("apptainer", "")
    built = ["apptainer", *BUILD, "--sandbox", ROOT, "oci:results/images/train/oci"]
    assert prepare("charliecloud", "oci")[0] == built
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
    pack = ["tar", "--directory=results/images/train/oci", "--exclude=./index.json"]
    pack += ["--exclude=./manifest.json", "--transform=s,^./before.json$,./index.json,"]
    assert module.prepare(image(), PLACE, {"execmode": "P2"}, gpus) == [
        [*pack, "--create", f"--file={archive}", "."],
        [*udocker, "load", "-i", archive, "dlbench"],
        [*udocker, "create", "--name=dlbench", "dlbench:image"],
        marker_command(image(), f"{PLACE}/containers/dlbench/ROOT"),
        setup,
        *nvidia,
        clear,
    ]
    assert module.prepare(image("folder", False), PLACE, {"execmode": "P2"}, gpus)[1:] == [
        [*udocker, "import", "--tocontainer", "--name=dlbench", archive],
        setup,
        *nvidia,
        clear,
    ]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A user's root folder, beside a file and a folder of this machine."""
    monkeypatch.chdir(tmp_path)
    Path("big/root/etc").mkdir(parents=True)
    Path("big/root/etc/hosts").write_text("mine")
    Path("big/root/dev").mkdir()
    Path("host").mkdir()
    Path("host/dlbench-image.json").write_text("the host's")
    marker = Path("results/images/train/marker", trainer_image.MARKER)
    marker.parent.mkdir(parents=True)
    marker.write_text('{"image_id": "x"}')
    Path(PLACE).mkdir()
    return tmp_path / "big/root"


def form_of(root, name):
    """The form that a runtime's commands make of an unmarked root folder, without its program."""
    given = Image("train", "folder", root, "sha256:" + "0" * 64, "x", False, {})
    commands = load(name).prepare(given, PLACE, CHOSEN.get(name, {}))
    for command in commands:
        if command[0] in ("sh", "tar", "chmod"):
            tools.run(command)
    if not Path(PLACE, "image.tar").exists():
        return Path(commands[0][-1])
    Path("form").mkdir()
    tools.run(["tar", "--extract", f"--file={PLACE}/image.tar", "--directory=form"])
    return Path("form")


@pytest.mark.parametrize("name", NAMES)
def test_the_marker_lies_over_what_a_folder_has_and_the_folder_stays_as_it_is(root, name):
    (root / trainer_image.MARKER).write_text("{}")
    made = form_of(root, name)
    assert json.loads((made / trainer_image.MARKER).read_text()) == {"image_id": "x"}
    assert (made / "etc/hosts").read_text() == "mine"
    assert (root / trainer_image.MARKER).read_text() == "{}"


@pytest.mark.parametrize("name", NAMES)
def test_the_marker_is_not_written_through_a_link_in_its_place(root, name):
    (root / trainer_image.MARKER).symlink_to(root.parents[1] / "host/dlbench-image.json")
    made = form_of(root, name)
    assert json.loads((made / trainer_image.MARKER).read_text()) == {"image_id": "x"}
    assert Path("host/dlbench-image.json").read_text() == "the host's"


@pytest.mark.parametrize("name", NAMES)
def test_the_marker_is_not_written_through_a_link_to_a_folder(root, name):
    (root / "etc").rename(root / "usr")
    (root / "etc").symlink_to(root.parents[1] / "host")
    with pytest.raises(Error, match="error: /etc is a link in the image: our marker cannot be"):
        form_of(root, name)
    assert Path("host/dlbench-image.json").read_text() == "the host's"
    assert (root / "etc").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("name", NAMES)
def test_devices_in_a_folder_which_an_ordinary_user_cannot_make_are_left_out(root, name):
    os.mknod(root / "dev/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    made = form_of(root, name)
    assert (made / "dev").is_dir() and not (made / "dev/null").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", NAMES)
def test_what_only_root_may_read_in_a_folder_is_left_out(root, name):
    (root / "etc/shadow").touch(mode=0)
    made = form_of(root, name)
    assert (made / "etc/hosts").exists() and not (made / "etc/shadow").exists()


def test_udocker_is_given_a_layout_without_our_layer(root):
    blobs = Blobs()
    for path, content in blobs.index(blobs.image([LAYER])).items():
        Path("oci", path).parent.mkdir(parents=True, exist_ok=True)
        Path("oci", path).write_bytes(content)
    layers = oci.read_image("oci")[1]["layers"]
    oci.add_file("oci", trainer_image.MARKER, b"{}")
    given = Image("train", "oci", Path("oci"), "sha256:0", "x", True, {})
    tools.run(load("udocker").prepare(given, PLACE, {"execmode": "P1"})[0])
    Path("given").mkdir()
    tools.run(["tar", "--extract", f"--file={PLACE}/image.tar", "--directory=given"])
    assert oci.read_image("given")[1]["layers"] == layers


def test_one_form_serves_all_runs_that_differ_in_how_they_start_only():
    forms = [load(name).form(CHOSEN.get(name, {})) for name in NAMES]
    assert forms == ["apptainer", "charliecloud", "docker", "podman", "udocker-P2"]


@pytest.mark.parametrize("name", NAMES)
def test_where_a_form_lies_is_known_before_it_is_made(name):
    made = load(name).prepared(image(), PLACE, {})
    if name in ("docker", "podman"):
        assert made == _engines.name(image())
    else:
        assert made.endswith(("form/image.sif", "form/root", f"{os.sep}form"))
