"""runtimes: the command lines that enter an image, compared word by word, and what shells make of
them. Nothing here needs a container runtime."""

import dataclasses
import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest

from dlbench import Error, engines, images, plugins, runtimes, tools
from dlbench.runtimes import Container

NAMES = [n for n in plugins.names("runtimes") if plugins.load("runtimes", n).CONTAINED]
FOLDER = '/home/me/it\'s a "$(touch hacked)" wörk'
PROGRAM = ["env", "-u", "X", "python", "train.py", "--log", "a b'c", "$(touch hacked)", "; exit 3"]
SETTINGS = {"PATH": "/opt/bin:/bin", "OPAL_PREFIX": "/opt/a b"}
CHOSEN = {"udocker": {"execmode": "P2"}, "apptainer": {"start": "command"}}


def load(name):
    return plugins.load("runtimes", name)


def container(name="apptainer", **changes):
    given = {
        "image": "/images/x",
        "folder": FOLDER,
        "binds": ("/scratch", "/data:/input:ro"),
        "environment": SETTINGS,
        "options": CHOSEN.get(name, {}),
        "name": "lenet5-r1-abc",
    }
    return Container(**given | changes)


def image(kind="oci", marked=True, name="train"):
    path = {"oci": "results/images/train/oci", "sif": "/big/x.sif", "folder": "/big/root"}[kind]
    return images.Image(name, kind, Path(path), "sha256:" + "0123456789ab" * 5, "id", marked, {})


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a program on the path, which has nothing else but what shells need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "sed", "mkdir", "touch", "cat", "xargs", "tar"):
        found = next(p for p in ("/bin", "/usr/bin") if Path(p, name).exists())
        (folder / name).symlink_to(Path(found, name))
    monkeypatch.setenv("PATH", str(folder))

    def add(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


@pytest.fixture
def user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


# Commands.


def test_every_runtime_has_what_a_runtime_must_have():
    assert NAMES == ["apptainer", "charliecloud", "docker", "podman", "udocker"]
    for name in NAMES:
        module = load(name)
        assert isinstance(module.HANDS_ON_LIBRARIES, bool)
        assert all(module.PROGRAMS)
        for word in ("version", "form", "prepare", "prepared", "command", "cleanup"):
            assert callable(getattr(module, word))


def test_apptainer_is_told_folders_variables_and_gpus(programs):
    programs("apptainer", "")
    assert load("apptainer").command(container(gpus=True), PROGRAM) == [
        "apptainer", "--silent", "exec", "--no-home", f"--pwd={FOLDER}",
        f"--bind={FOLDER}:{FOLDER}:rw", "--bind=/scratch:/scratch:rw", "--bind=/data:/input:ro",
        "--env=OPAL_PREFIX=/opt/a b", "--nv", "/images/x", *PROGRAM,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("there", "name"),
    [
        (["apptainer", "singularity"], "apptainer"),
        (["singularity"], "singularity"),
        ([], "apptainer"),
    ],
)
def test_apptainer_may_have_the_name_singularity(programs, there, name):
    for one in there:
        programs(one, "")
    assert load("apptainer").command(container(), PROGRAM)[0] == name
    missing = tools.missing(load("apptainer").PROGRAMS)
    assert (missing is None) == bool(there)
    if not there:
        assert missing == "apptainer or singularity is not on the path of this machine"


BEFORE = [
    "run", "--rm", "--network=host", "--ipc=host", "--entrypoint=", f"--workdir={FOLDER}",
    "--label=dlbench.run=lenet5-r1-abc",
]  # fmt: skip
MOUNTS = [
    f"--volume={FOLDER}:{FOLDER}:rw", "--volume=/scratch:/scratch:rw", "--volume=/data:/input:ro",
    "--volume=/tmp:/tmp:rw",
]  # fmt: skip
AFTER = ["--env=OPAL_PREFIX=/opt/a b", "--env=PATH=/opt/bin:/bin", "/images/x", *PROGRAM]
ASKED_BY_USER = ["--ulimit=host", "--pid=host", "--security-opt=label=disable"]
OWN = {
    "podman": ([*ASKED_BY_USER, "--userns=keep-id"], "--device=nvidia.com/gpu=all"),
    "docker": (["--pid=host", f"--user={os.getuid()}:{os.getgid()}"], "--gpus=all"),
}
PRINTS = """printf '%s\\0' "$@" > "$SAID"; touch() { :; }"""


def arguments(command, tmp_path, monkeypatch, **variables):
    """What the program at the end of a command is given, and nothing else happened."""
    monkeypatch.chdir(tmp_path)
    environment = {"PATH": os.environ["PATH"], "SAID": str(tmp_path / "said"), **variables}
    subprocess.run(command, env=environment, check=True)
    assert not (tmp_path / "hacked").exists()
    return (tmp_path / "said").read_text().split("\0")[:-1]


@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("engine", OWN)
def test_engines_get_every_word_through_the_shell(
    programs, tmp_path, monkeypatch, user, engine, gpus
):
    programs(engine, PRINTS)
    command = load(engine).command(container(engine, gpus=gpus), PROGRAM)
    assert command[:2] == ["sh", "-c"]
    flags, gpu = OWN[engine]
    said = arguments(command, tmp_path, monkeypatch)
    assert said == [*BEFORE, *flags, *([gpu] if gpus else []), *MOUNTS, *AFTER]


def test_podman_of_root_has_no_user_of_another_number_to_keep(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "keep-id" not in load("podman").command(container("podman"), PROGRAM)[2]


HANDED_ON = {
    "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_RANK": "1", "SLURM_PROCID": "1",
    "CUDA_VISIBLE_DEVICES": "0,1", "DLBENCH_COPY": "3", "HOROVOD_RANK": "$(touch hacked)",
    "TF_CONFIG": '{"cluster": {"worker": ["a b"]}}', "OMP_NUM_THREADS": "; exit 3",
    "NCCL_DEBUG": "it's", "UCX_TLS": "", "I_MPI_ROOT": "*",
}  # fmt: skip
NOT_HANDED_ON = {
    "HOME": "/home/me", "LD_LIBRARY_PATH": "/lib", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/x",
    "SECRET": "x", "XCUDA_X": "x", "CUDA": "x", "OMPI-X_Y": "x", "CUDA_$(touch hacked)": "x",
    "AWS_SECRET": "a\nOTHER_LINE=1",
}  # fmt: skip


@pytest.mark.parametrize("engine", OWN)
def test_engines_hand_on_what_launchers_say_by_name_and_nothing_else(
    programs, tmp_path, monkeypatch, engine
):
    programs(engine, PRINTS)
    command = load(engine).command(container(engine, environment={}), PROGRAM)
    said = arguments(command, tmp_path, monkeypatch, **HANDED_ON, **NOT_HANDED_ON)
    handed_on = [word for word in said if word.startswith("--env")]
    assert sorted(handed_on) == sorted(f"--env={name}" for name in HANDED_ON)
    assert said.index(handed_on[-1]) < said.index("/images/x")


def test_what_the_image_sets_comes_after_what_is_handed_on(programs, tmp_path, monkeypatch):
    programs("podman", PRINTS)
    command = load("podman").command(container("podman"), PROGRAM)
    said = arguments(command, tmp_path, monkeypatch, OPAL_PREFIX="/host")
    assert said.index("--env=OPAL_PREFIX") < said.index("--env=OPAL_PREFIX=/opt/a b")


@pytest.mark.parametrize("engine", OWN)
def test_engines_return_the_exit_code_of_the_program(programs, engine):
    programs(engine, "exit 7")
    command = load(engine).command(container(engine), PROGRAM)
    assert subprocess.run(command, check=False).returncode == 7


def test_charliecloud_gets_every_word(programs, tmp_path, monkeypatch):
    programs("ch-run", PRINTS)
    root = str(tmp_path / "ro ot$(touch hacked)")
    command = load("charliecloud").command(container("charliecloud", image=root), PROGRAM)
    assert arguments(command, tmp_path, monkeypatch) == [
        f"--cd={FOLDER}", "--unset-env=LD_LIBRARY_PATH", f"--bind={FOLDER}:{FOLDER}",
        "--bind=/scratch:/scratch", "--bind=/data:/input", "--set-env=OPAL_PREFIX=/opt/a b",
        "--set-env=PATH=/opt/bin:/bin", root, "--", *PROGRAM,
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "more"), [(1000, []), (0, ["--allow-root"])])
def test_udocker_gets_every_word_and_its_containers_lie_with_the_image(
    programs, tmp_path, monkeypatch, number, more
):
    monkeypatch.setattr(os, "geteuid", lambda: number)
    programs("udocker", f"""{PRINTS}; env > "$SAID.environment\"""")
    place = str(tmp_path / "pl ace")
    command = load("udocker").command(container("udocker", image=place), PROGRAM)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert arguments(command, tmp_path, monkeypatch) == [
        *more, "--quiet", "run", "--nobanner", "--hostenv", "--hostauth", f"--user={user}",
        "--entrypoint=", f"--workdir={FOLDER}", f"--volume={FOLDER}:{FOLDER}",
        # It would take what follows a second colon as part of the path.
        "--volume=/scratch:/scratch", "--volume=/data:/input", "--volume=/tmp:/tmp",
        "--volume=/etc/hosts:/etc/hosts", "--volume=/etc/resolv.conf:/etc/resolv.conf",
        "--env=OPAL_PREFIX=/opt/a b", "--env=PATH=/opt/bin:/bin", "dlbench", *PROGRAM,
    ]  # fmt: skip
    environment = (tmp_path / "said.environment").read_text().splitlines()
    for name in ("containers", "repos", "layers"):
        assert f"UDOCKER_{name.upper()}={place}/{name}" in environment
    assert load("udocker").version() == ["udocker", *more, "--version"]


@pytest.mark.parametrize(
    ("name", "program", "root"),
    [("charliecloud", "ch-run", ""), ("udocker", "udocker", "containers/dlbench/ROOT")],
)
def test_where_an_image_lacks_a_place_for_a_bind_it_is_made(
    programs, tmp_path, monkeypatch, name, program, root
):
    programs(program, PRINTS)
    folder, file = tmp_path / "it's a $(touch hacked) folder", tmp_path / "a file"
    folder.mkdir()
    file.write_text("not touched")
    given = {"folder": str(folder), "binds": (f"{folder}:/in put", f"{file}:/etc/a/b")}
    made = container(name, image=str(tmp_path / "image"), **given)
    for _ in range(2):
        arguments(load(name).command(made, PROGRAM), tmp_path, monkeypatch)
    inside = tmp_path / "image" / root
    assert (inside / str(folder)[1:]).is_dir()
    assert (inside / "in put").is_dir()
    assert (inside / "etc/a/b").read_text() == ""
    assert file.read_text() == "not touched"


def test_no_place_for_a_bind_is_made_outside_of_the_image(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    (root / "var").mkdir(parents=True)
    outside.mkdir()
    (root / "var/run").symlink_to(outside)
    given = container(image=str(root), folder=str(tmp_path), binds=(f"{tmp_path}:/var/run/x",))
    with pytest.raises(Error, match="/var/run/x cannot be seen in the container: a link"):
        load("charliecloud").command(given, PROGRAM)


def test_containers_of_engines_are_ended_by_their_label(programs, tmp_path, monkeypatch):
    for engine in OWN:
        script = (
            f"""printf '%s|' {engine} "$@" >> "$SAID"; case $1 in ps) echo c1; echo c2;; esac"""
        )
        programs(engine, script)
        ended = dataclasses.replace(container(engine), name="a b;$(touch hacked)")
        arguments(load(engine).cleanup(ended), tmp_path, monkeypatch)
        assert (tmp_path / "said").read_text() == (
            f"{engine}|ps|--all|--quiet|--filter=label=dlbench.run=a b;$(touch hacked)|"
            f"{engine}|rm|--force|c1|c2|"
        )
        (tmp_path / "said").unlink()


def test_where_no_container_is_left_none_is_removed(programs, tmp_path, monkeypatch):
    programs("podman", """printf '%s\\0' "$1" >> "$SAID\"""")
    command = load("podman").cleanup(container("podman"))
    assert arguments(command, tmp_path, monkeypatch) == ["ps"]


@pytest.mark.parametrize("name", ["apptainer", "charliecloud", "udocker"])
def test_what_dies_with_its_parent_needs_no_cleaning(name):
    assert load(name).cleanup(container(name)) is None


@pytest.mark.parametrize(
    ("bind", "mount"),
    [
        ("/a", ("/a", "/a", "rw")),
        ("/a:/b", ("/a", "/b", "rw")),
        ("/a:/b:ro", ("/a", "/b", "ro")),
        ("/a b:/c d", ("/a b", "/c d", "rw")),
        ("/a::ro", ("/a", "/a", "ro")),
    ],
)
def test_binds_are_read_as_everyone_writes_them(bind, mount):
    assert container(binds=(bind,)).mounts() == [(FOLDER, FOLDER, "rw"), mount]


def test_the_container_directive_gets_the_rest_by_variables(monkeypatch):
    for tool in ("APPTAINER", "SINGULARITY"):
        monkeypatch.delenv(f"{tool}_BIND", raising=False)
    directive_environment = load("apptainer").directive_environment
    binds = ("/scratch", "/data:/input:ro")
    assert directive_environment(binds, gpus=True) == {
        "APPTAINER_BIND": "/scratch:/scratch:rw,/data:/input:ro",
        "SINGULARITY_BIND": "/scratch:/scratch:rw,/data:/input:ro",
        "APPTAINER_NV": "1",
        "SINGULARITY_NV": "1",
    }
    assert directive_environment((), gpus=False) == {}
    monkeypatch.setenv("APPTAINER_BIND", "/mine,/scratch:/scratch:rw")
    found = directive_environment(binds, gpus=False)
    assert found["APPTAINER_BIND"] == "/mine,/scratch:/scratch:rw,/data:/input:ro"


# What brings an image to the form of a runtime.

PLACE = "results/images/train/form"
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


@pytest.mark.parametrize("engine", OWN)
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


# Forms.


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


@pytest.mark.parametrize("name", NAMES)
def test_making_commands_runs_and_writes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(subprocess, "Popen", None)
    module, chosen = load(name), CHOSEN.get(name, {})
    for kind in ("oci", "sif", "folder"):
        for marked in (True, False):
            module.prepare(image(kind, marked), PLACE, chosen, True)
    program = list(PROGRAM)
    module.command(container(name), program)
    assert program == PROGRAM
    assert list(tmp_path.iterdir()) == []


def test_variables_that_are_kept_out_are_none_that_are_handed_on_but_those_of_mpi():
    kept = {name for name in runtimes.KEPT_OUT if name.split("_")[0] in runtimes.HANDED_ON}
    assert kept == {"OPAL_PREFIX", "PMIX_INSTALL_PREFIX"}
