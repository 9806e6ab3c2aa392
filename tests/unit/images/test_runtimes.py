"""runtimes: the commands that enter an image and make its form, compared word by word."""

import dataclasses
import json
import os
import platform
import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import tools
from dlbench.images import oci, runtimes, trainer_image
from dlbench.images.runtimes import BUILD, Image, marker_command, store_name
from dlbench.starting import start_command
from dlbench.study.runs import Run
from support.images import contained_runs
from support.images.contained_runs import (
    CHOSEN,
    FOLDER,
    NAMES,
    PLACE,
    PROGRAM,
    SETTINGS,
    arguments,
    container,
    image,
    load,
)
from support.images.image_files import LAYER, Blobs


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setenv("DLBENCH_REGISTRY", "registry.example/me")  # of Shifter


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
    missing = tools.missing_program(load("apptainer").PROGRAMS)
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
    "podman_hpc": ([*ASKED_BY_USER, "--userns=keep-id"], "--gpu"),
    "docker": (["--pid=host", f"--user={os.getuid()}:{os.getgid()}"], "--gpus=all"),
}
PRINTS = """printf '%s\\0' "$@" > "$SAID"; touch() { :; }"""


@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("engine", OWN)
def test_engines_get_every_word_through_the_shell(
    programs, tmp_path, monkeypatch, user, engine, gpus
):
    programs(*load(engine).PROGRAMS, PRINTS)
    command = load(engine).command(container(engine, gpus=gpus), PROGRAM)
    assert command[:2] == ["sh", "-c"]
    flags, gpu = OWN[engine]
    said = arguments(command, tmp_path, monkeypatch)
    assert said == [*BEFORE, *flags, *([gpu] if gpus else []), *MOUNTS, *AFTER]


def test_podman_of_root_has_no_user_of_another_number_to_keep(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "keep-id" not in load("podman").command(container("podman"), PROGRAM)[2]


FORWARDED = {
    "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_RANK": "1", "SLURM_PROCID": "1",
    "CUDA_VISIBLE_DEVICES": "0,1", "DLBENCH_COPY": "3", "HOROVOD_RANK": "$(touch hacked)",
    "TF_CONFIG": '{"cluster": {"worker": ["a b"]}}', "OMP_NUM_THREADS": "; exit 3",
    "NCCL_DEBUG": "it's", "UCX_TLS": "", "I_MPI_ROOT": "*",
    "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "FLUX_TASK_RANK": "1",
}  # fmt: skip
NOT_FORWARDED = {
    "HOME": "/home/me", "LD_LIBRARY_PATH": "/lib", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/x",
    "SECRET": "x", "XCUDA_X": "x", "CUDA": "x", "OMPI-X_Y": "x", "CUDA_$(touch hacked)": "x",
    "AWS_SECRET": "a\nOTHER_LINE=1", "RANKS": "x", "XRANK": "x",
}  # fmt: skip


@pytest.mark.parametrize("engine", OWN)
def test_engines_hand_on_what_launchers_say_by_name_and_nothing_else(
    programs, tmp_path, monkeypatch, engine
):
    programs(*load(engine).PROGRAMS, PRINTS)
    command = load(engine).command(container(engine, environment={}), PROGRAM)
    said = arguments(command, tmp_path, monkeypatch, **FORWARDED, **NOT_FORWARDED)
    forwarded = [word for word in said if word.startswith("--env")]
    assert sorted(forwarded) == sorted(f"--env={name}" for name in FORWARDED)
    assert said.index(forwarded[-1]) < said.index("/images/x")


def test_what_the_image_sets_comes_after_what_is_handed_on(programs, tmp_path, monkeypatch):
    programs("podman", PRINTS)
    command = load("podman").command(container("podman"), PROGRAM)
    said = arguments(command, tmp_path, monkeypatch, OPAL_PREFIX="/host")
    assert said.index("--env=OPAL_PREFIX") < said.index("--env=OPAL_PREFIX=/opt/a b")


@pytest.mark.parametrize("engine", OWN)
def test_engines_return_the_exit_code_of_the_program(programs, engine):
    programs(*load(engine).PROGRAMS, "exit 7")
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
    with pytest.raises(Error, match="/var/run/x cannot be mounted: a symbolic link"):
        load("charliecloud").command(given, PROGRAM)


def test_containers_of_engines_are_ended_by_their_label(programs, tmp_path, monkeypatch):
    for engine in OWN:
        script = (
            f"""printf '%s|' {engine} "$@" >> "$SAID"; case $1 in ps) echo c1; echo c2;; esac"""
        )
        programs(*load(engine).PROGRAMS, script)
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
    for name in {*NAMES} - {*OWN}:  # which die with their parent
        assert not hasattr(load(name), "cleanup")


def test_binds_are_read_as_everyone_writes_them():
    binds = ("/a", "/a b:/c d", "/a:/b:ro", "/a::ro")
    mounts = [("/a", "/a", "rw"), ("/a b", "/c d", "rw"), ("/a", "/b", "ro"), ("/a", "/a", "ro")]
    assert container(binds=binds).mounts() == [(FOLDER, FOLDER, "rw"), *mounts]


def test_the_container_directive_gets_the_rest_by_variables(monkeypatch):
    for tool in ("APPTAINER", "SINGULARITY"):
        monkeypatch.delenv(f"{tool}_BIND", raising=False)
    directive_environment = load("apptainer").directive_environment
    binds = ("/scratch", "/data:/input:ro")
    mounts = "/scratch:/scratch:rw,/data:/input:ro"
    assert directive_environment(binds, gpus=True) == {
        "APPTAINER_BIND": mounts, "SINGULARITY_BIND": mounts,
        "APPTAINER_NV": "1", "SINGULARITY_NV": "1",
    }  # fmt: skip
    assert directive_environment((), gpus=False) == {}
    monkeypatch.setenv("APPTAINER_BIND", "/mine,/scratch:/scratch:rw")
    found = directive_environment(binds, gpus=False)
    assert found["APPTAINER_BIND"] == f"/mine,{mounts}"


@pytest.mark.parametrize("name", NAMES)
def test_making_commands_runs_and_writes_nothing(name, here, monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(subprocess, "Popen", None)
    module, chosen = load(name), CHOSEN.get(name, {})
    for kind in ("oci", "sif", "folder"):
        for marked in (True, False):
            given = contained_runs.image(kind, marked)
            module.prepare(given, contained_runs.PLACE, chosen, True)
    program = list(PROGRAM)
    module.command(container(name), program)
    assert program == PROGRAM
    assert list(here.iterdir()) == []


def test_variables_that_are_kept_out_are_none_that_are_handed_on_but_those_of_mpi():
    unchanged = {
        name for name in runtimes.HOST_ONLY if name.split("_")[0] in runtimes.FORWARDED_PREFIXES
    }
    assert unchanged == {"OPAL_PREFIX", "PMIX_INSTALL_PREFIX"}


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
    assert store_name(image(name="My.Image")) == "localhost/dlbench/my.image:0123456789ab"


def test_podman_hpc_shows_its_image_to_all_nodes():
    name = store_name(image())
    assert [command[-3:] for command in prepare("podman_hpc", "oci")] == [
        ["podman-hpc", "oci:results/images/train/oci", name],
        ["podman-hpc", "migrate", name],
    ]
    assert prepare("podman_hpc", "folder")[-1] == ["podman-hpc", "migrate", name]


FROM = "--mount=type=bind,source="
SET = ("--env=OPAL_PREFIX=/opt/a b", "--env=PATH=/opt/bin:/bin", f"--workdir={FOLDER}")
WORDS = {
    "enroot": [
        "start", *(f"--mount={paths}:none:x-create=auto,rbind,{mode}" for paths, mode in [
            (f"{FOLDER}:{FOLDER}", "rw"), ("/scratch:/scratch", "rw"), ("/data:/input", "ro"),
            ("/tmp:/tmp", "rw")]),
        "--env=NVIDIA_VISIBLE_DEVICES=all", "--env=NVIDIA_DRIVER_CAPABILITIES=all", "--env=RANK",
        "/images/x", "sh", "-c", 'cd "$0" && exec "$@"', FOLDER,
        "env", "OPAL_PREFIX=/opt/a b", "PATH=/opt/bin:/bin",
    ],
    "sarus": [
        "run", "--entrypoint", "", *SET, f"{FROM}{FOLDER},destination={FOLDER}",
        f"{FROM}/scratch,destination=/scratch", f"{FROM}/data,destination=/input,readonly",
        f"{FROM}/tmp,destination=/tmp", "/images/x",
    ],
    "shifter": ["--image=/images/x", *SET, "--volume=/data:/input:ro"],
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_other_prefixes_get_every_word(programs, tmp_path, monkeypatch, name):
    programs(load(name).PROGRAMS[0], PRINTS)
    command = load(name).command(container(name, gpus=True), PROGRAM)
    said = arguments(command, tmp_path, monkeypatch, RANK="1", SECRET="x")
    assert said == [*WORDS[name], *PROGRAM]


# As Slurm's srun with Pyxis: options, each once, and then the program.
SRUN = """
seen=
for word in "$@"; do
    case $word in
    --overlap) ;;
    --nodes=*|--ntasks=*|--distribution=*|--cpu-bind=*|--kill-on-bad-exit=*|--export=*|\\
    --container-image=*|--container-mounts=*|--container-workdir=*|--no-container-mount-home|\\
    --no-container-remap-root|--no-container-entrypoint)
        case $seen in *" ${word%%=*} "*) echo "$word again" >&2; exit 1;; esac
        seen="$seen ${word%%=*} ";;
    -*) echo "srun: unrecognized option $word" >&2; exit 1;;
    *) break;;
    esac
done
printf '%s\\0' "$@" > "$SAID"
"""
SRUN_FLAGS = [
    "--nodes=2", "--ntasks=2", "--distribution=block,NoPack", "--cpu-bind=none",
    "--kill-on-bad-exit=1", "--overlap",
]  # fmt: skip
WORK = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5}


@pytest.mark.parametrize(
    ("launcher", "flags"), [("none", []), ("srun", SRUN_FLAGS)], ids=["none", "srun"]
)
def test_pyxis_is_options_of_the_one_srun_that_starts_the_run(
    launcher, flags, programs, tmp_path, monkeypatch
):
    programs("srun", SRUN)
    several = {"strategy": "horovod", "nodes": 2} if flags else {}
    run = Run(**WORK, **several, runtime="pyxis", launcher=launcher, variables="'A=b c'")
    form = {key: {} for key in start_command.LOGGED}
    form |= {"prepared": "/i/x.sqsh", "environment": SETTINGS, "image_id": "id", "python": "python"}
    monkeypatch.chdir(tmp_path)
    trainer = ["envs/train/.venv/bin/python", "train.py", "--log", "it's"]
    built = start_command.build(run, trainer, form, "gpu", [f"{tmp_path}:/input:ro"])
    said = arguments(list(built.command), tmp_path, monkeypatch)
    first = said.index("env")
    assert said[:first] == [
        *(*flags, "--overlap", "--container-image=/i/x.sqsh"),
        f"--container-mounts={tmp_path}:{tmp_path}:rw,{tmp_path}:/input:ro,/tmp:/tmp:rw",
        *(f"--container-workdir={tmp_path}", "--no-container-mount-home"),
        *("--no-container-remap-root", "--no-container-entrypoint"),
        "--export=ALL,NVIDIA_VISIBLE_DEVICES=all,NVIDIA_DRIVER_CAPABILITIES=all",
    ]
    assert said[first:][:3] == ["env", "OPAL_PREFIX=/opt/a b", "PATH=/opt/bin:/bin"]
    assert "LD_LIBRARY_PATH" in said[first:]
    assert said[said.index("A=b c") :] == ["A=b c", "python", *trainer[1:], "--image-id", "id"]


@pytest.mark.parametrize(
    "changes", [{"launcher": "mpirun"}, {"trainer": "theirs"}, {"copies_per_node": 2}]
)
def test_pyxis_under_another_launcher_or_with_another_trainer_is_refused(changes):
    why = trainer_image.unsupported(Run(**WORK, runtime="pyxis", **changes), {})
    assert "runtime pyxis needs launcher none or srun, and dlbench's own trainer" in why


def test_enroot_and_pyxis_take_one_squashed_folder_with_the_marker(only_apptainer):
    where = f"{Path.cwd()}/{PLACE}/image.sqsh"
    for name in ("enroot", "pyxis"):
        _, _, mark, squash, clear = prepare(name, "sif", False)
        assert mark == marker_command(image("sif", False), ROOT)
        assert squash == ["mksquashfs", ROOT, where, *runtimes.SQUASH]
        assert clear == ["rm", "-rf", ROOT]
        assert load(name).prepared(image(), PLACE, {}) == where


NAMED = "dlbench/train:0123456789ab"
PUSHED = f"registry.example/me/{NAMED}"


@pytest.mark.parametrize(
    ("name", "copied", "take", "form"),
    [
        ("sarus", f"docker-archive:{PLACE}/saved.tar:{NAMED}",
         ["sarus", "load", f"{PLACE}/saved.tar", NAMED], f"load/{NAMED}"),
        ("shifter", f"docker://{PUSHED}", ["shifterimg", "pull", f"docker:{PUSHED}"],
         f"docker:{PUSHED}"),
    ],
)  # fmt: skip
def test_sarus_and_shifter_get_the_image_by_skopeo(name, copied, take, form, monkeypatch):
    layout = "oci:results/images/train/oci"
    assert prepare(name, "oci")[:2] == [["skopeo", "copy", layout, copied], take]
    assert prepare(name, "folder")[1][2:] == [f"tarball:{PLACE}/image.tar", copied]
    assert load(name).prepared(image(), PLACE, {}) == form
    monkeypatch.delenv("DLBENCH_REGISTRY")
    with pytest.raises(Error, match=r"expected a registry in DLBENCH_REGISTRY, .*; found none"):
        prepare("shifter", "oci")


@pytest.mark.parametrize("line", ["Loaded image: image:latest", "Loaded image ID: sha256:abc"])
def test_what_docker_loads_is_given_our_name(programs, tmp_path, monkeypatch, line):
    pack, named, clear = prepare("docker", "oci")
    folder = "--directory=results/images/train/oci"
    assert pack == ["tar", folder, "--create", f"--file={PLACE}/image.tar", "."]
    assert clear == ["rm", "-rf", f"{PLACE}/image.tar", ROOT]
    script = f"""case $1 in load) echo '{line}';; *) printf '%s\\0' "$@" > "$SAID";; esac"""
    programs("docker", script)
    output = arguments(named, tmp_path, monkeypatch)
    assert output == ["tag", line.split()[-1], store_name(image())]
    programs("docker", "exit 5")
    assert subprocess.run(named, check=False).returncode == 5


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_engines_import_a_folder_and_lay_the_marker_over_it(engine):
    for marked in (False, True):
        pack, load_it, _ = prepare(engine, "folder", marked)
        assert pack[-3:] == ["/big/root", f"{PLACE}/image.tar", MARKER]
        assert ("--append" in pack[2]) is not marked
        assert load_it == [engine, "import", f"{PLACE}/image.tar", store_name(image())]


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
def root(here):
    """A user's root folder, beside a file and a folder of this machine."""
    Path("big/root/etc").mkdir(parents=True)
    Path("big/root/etc/hosts").write_text("mine")
    Path("big/root/dev").mkdir()
    Path("host").mkdir()
    Path("host/dlbench-image.json").write_text("the host's")
    marker = Path("results/images/train/marker", trainer_image.MARKER)
    marker.parent.mkdir(parents=True)
    marker.write_text('{"image_id": "x"}')
    Path(PLACE).mkdir()
    return here / "big/root"


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
    work = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5}
    chosen = {"udocker": "execmode=P2", "apptainer": "start=command"}
    runs = [Run(**work, runtime=name, runtime_options=chosen.get(name, "")) for name in NAMES]
    forms = [trainer_image.form_name(run) for run in runs]
    assert forms == [name.replace("udocker", "udocker-P2") for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_where_a_form_lies_is_known_before_it_is_made(name):
    made = load(name).prepared(image(), PLACE, {})
    if name in (*OWN, "sarus", "shifter"):
        assert made.endswith(NAMED)
    else:
        assert made.endswith(("form/image.sif", "form/image.sqsh", "form/root", f"{os.sep}form"))
