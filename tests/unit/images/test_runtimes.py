"""runtimes: the command lines that enter an image, compared word by word, and what shells make of
them. Nothing here needs a container runtime."""

import dataclasses
import os
import pwd
import subprocess

import pytest

from dlbench import Error
from dlbench.common import tools
from dlbench.images import runtimes
from support.images import contained_runs
from support.images.contained_runs import CHOSEN, FOLDER, NAMES, PROGRAM, arguments, container, load


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
    "docker": (["--pid=host", f"--user={os.getuid()}:{os.getgid()}"], "--gpus=all"),
}
PRINTS = """printf '%s\\0' "$@" > "$SAID"; touch() { :; }"""


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


FORWARDED = {
    "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_RANK": "1", "SLURM_PROCID": "1",
    "CUDA_VISIBLE_DEVICES": "0,1", "DLBENCH_COPY": "3", "HOROVOD_RANK": "$(touch hacked)",
    "TF_CONFIG": '{"cluster": {"worker": ["a b"]}}', "OMP_NUM_THREADS": "; exit 3",
    "NCCL_DEBUG": "it's", "UCX_TLS": "", "I_MPI_ROOT": "*",
}  # fmt: skip
NOT_FORWARDED = {
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
    with pytest.raises(Error, match="/var/run/x cannot be mounted: a symbolic link"):
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
    for name in ("apptainer", "charliecloud", "udocker"):  # which die with their parent
        assert load(name).cleanup(container(name)) is None


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
def test_making_commands_runs_and_writes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    assert list(tmp_path.iterdir()) == []


def test_variables_that_are_kept_out_are_none_that_are_handed_on_but_those_of_mpi():
    unchanged = {
        name for name in runtimes.HOST_ONLY if name.split("_")[0] in runtimes.FORWARDED_PREFIXES
    }
    assert unchanged == {"OPAL_PREFIX", "PMIX_INSTALL_PREFIX"}
