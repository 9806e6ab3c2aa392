"""make_image: images are checked from inside, and what is refused."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import plugins, tools
from dlbench.images import make_image, trainer_image
from dlbench.plan import skipping
from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.images.image_files import archive, digest, make, program, root_folder, runnable_root
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.usefixtures("place")


INSIDE = {
    "marker": {"image_id": "build-1"},
    "python": "/opt/dlbench/bin/python3",
    "python_version": "3.11.7",
    "architecture": "x86_64",
    "libc": "glibc 2.36",
    "packages": {"tensorflow": "2.18.1", "jax": None, "torch": None, "keras": "3.8.0",
                 "numpy": "2.0", "psutil": "6", "horovod": None},
    "mpirun": None,
    "mpi": None,
}  # fmt: skip


def ch_run(before=""):
    """A fake runtime that runs the program on this machine."""
    program(
        "ch-run",
        f"""[ "$1" = --version ] && {{ echo 0.31; echo more; exit; }}
        {before}
        while [ "$1" != -- ]; do shift; done; shift; exec "$@" """,
    )


def interpreter(said, code=0):
    Path("said.json").write_text(said if isinstance(said, str) else json.dumps(said))
    program("fake-python", f"cat {Path.cwd()}/said.json; echo its message >&2; exit {code}")
    return "fake-python"


def prepare(python, image=None, runtime="charliecloud", **chosen):
    image = image or make(root_folder(marker='{"image_id": "build-1"}'))
    output = Path("results/images/x/form.json")
    make_image.prepare(image, runtime, chosen, python, False, output)
    return trainer_image.read_form(output)


def test_what_was_found_inside_is_written_down():
    ch_run()
    form = prepare(interpreter("Welcome!\n\n" + json.dumps(INSIDE)))
    assert (form["image"], form["image_id"]) == ("x", "build-1")
    assert form["python_version"] == "3.11.7"
    assert form["digest"] == trainer_image.read(trainer_image.image_path("x")).digest
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
        "image x under charliecloud: /etc/dlbench-image.json is missing inside: the process was "
        "not in the image, but saw the files of this machine"
    )
    assert not Path("results/images/x/form.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"marker": {"image_id": "build-2"}}, "expected the image build-1, the process was in bui"),
        ({"marker": {}}, "is missing inside"),
        ({"python_version": "3.9.18"}, "needs Python 3.10 or newer, has 3.9.18"),
        ({"python_version": "2.7.18+"}, "needs Python 3.10 or newer, has 2.7.18+"),
        ({"packages": INSIDE["packages"] | {"keras": "2.15.0"}}, "needs keras 3 or newer, has 2.1"),
        (
            {"packages": INSIDE["packages"] | {"tensorflow": None}},
            "neither jax nor torch nor tensorflow is installed for /opt/dlbench/bin/python3",
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


@pytest.mark.parametrize(("said", "code"), [("no json", 0), ("", 0), (json.dumps(INSIDE), 3)])
def test_an_interpreter_that_does_not_start_is_quoted(said, code):
    ch_run()
    with pytest.raises(Error) as error:
        prepare(interpreter(said, code))
    message = str(error.value)
    assert f"Python could not be started inside (exit code {code}): " in message
    assert "its message" in message
    assert message.endswith("is there a python3 in it? (images: python names another)")


def test_a_runtime_that_fails_itself_is_not_asked_for_python():
    ch_run("echo 'Error: installation of charliecloud tools failed' >&2; exit 1")
    with pytest.raises(Error) as error:
        prepare(interpreter(INSIDE))
    assert str(error.value).endswith(
        "installation of charliecloud tools failed; is charliecloud installed here with all its "
        "tools? (docs/containers.md)"
    )


def test_what_this_machine_says_of_its_programs_is_not_seen_inside(monkeypatch):
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "OPAL_PREFIX", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/host")
    monkeypatch.setenv("HARMLESS", "x")
    ch_run("env > seen")
    prepare(interpreter(INSIDE))
    seen = Path("seen").read_text()
    assert "/host" not in seen
    assert "HARMLESS=x" in seen


def test_a_runtime_that_is_not_there_is_named_first():
    with pytest.raises(Error, match="ch-run is not on the path of this machine"):
        prepare("python3")
    with pytest.raises(Error, match="apptainer or singularity is not on the path"):
        prepare("python3", trainer_image.read(trainer_image.image_path("x")), "apptainer")


def test_a_form_that_cannot_be_made_has_the_words_of_what_failed():
    ch_run()
    program("chmod", "echo chmod: no space left on device; exit 1")
    with pytest.raises(Error, match=r"x under charliecloud: chmod failed \(exit .*; a disk is ful"):
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
    marker = json.loads(Path("results/images/x/form/root", trainer_image.MARKER).read_text())
    assert marker["image_id"] == image.digest
    assert not Path("root", trainer_image.MARKER).exists()


@pytest.mark.parametrize(
    ("package", "asking"),
    [
        ("horovod", {"strategy": "horovod"}),
        ("grain", {"framework": "jax", "input": "grain"}),
        ("jax", {"framework": "jax"}),
    ],
)
def test_a_package_that_a_framework_strategy_or_reader_needs_must_be_in_the_image(package, asking):
    for there in ("1", None):
        form = {"image": "x", "digest": "sha256:1", "packages": {package: there}}
        trainer_image.check_packages(images_run(), form)
        if there:
            trainer_image.check_packages(images_run(**asking), form)
    with pytest.raises(trainer_image.Unusable) as error:
        trainer_image.check_packages(images_run(**asking), form)
    assert str(error.value) == f"{package} is not in the image x (sha256:1)"


def test_an_image_of_pytorch_needs_no_keras():
    ch_run()
    packages = INSIDE["packages"] | {"tensorflow": None, "keras": None, "torch": "2.15.0"}
    form = prepare(interpreter(INSIDE | {"packages": packages}))
    trainer_image.check_packages(images_run(framework="pytorch"), form)
    with pytest.raises(trainer_image.Unusable, match=r"^tensorflow is not in the image x"):
        trainer_image.check_packages(images_run(), form)


def test_images_are_asked_for_what_any_framework_needs(monkeypatch):
    monkeypatch.setattr(engine, "names", lambda: ["tensorflow", "pytorch"])
    ch_run()
    program("fake-python", f'echo "$@" >{Path.cwd()}/asked; echo {shlex.quote(json.dumps(INSIDE))}')
    prepare("fake-python")
    asked = Path("asked").read_text().split()[1:]
    assert asked == ["grain", "horovod", "keras", "numpy", "psutil", "tensorflow", "torch"]


def test_a_module_has_the_version_of_the_package_that_brings_it():
    program = REPOSITORY / "workflow_scripts/describe_image.py"
    command = [sys.executable, program, "numpy", "yaml", "json", "no_such_module"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(answer.stdout)["packages"] == {
        "numpy": metadata.version("numpy"), "yaml": metadata.version("PyYAML"),
        "json": "unknown", "no_such_module": None,
    }  # fmt: skip


def images_run(**changes):
    values = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 5}
    return Run(**values, runtime="podman", environment="x", **changes)


def test_a_run_knows_its_form_before_it_is_made():
    run = images_run()
    assert trainer_image.form_path(run) == "results/images/x/podman.json"
    assert skipping.cannot_run(run, skipping.Devices("cpu", None, 2)) == (
        "runtime podman is not installed: podman is not on the path of this machine"
    )


# With the real thing.


@pytest.mark.skipif(not shutil.which("apptainer"), reason="apptainer is not installed")
@pytest.mark.ci
def test_a_sif_gets_the_marker_and_is_otherwise_as_it_was(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"] + os.pathsep + "/usr/bin:/bin:/usr/sbin:/sbin")
    tools.run(["apptainer", "build", "x.sif", runnable_root()])
    before = Path("x.sif").read_bytes()
    Path("x.sif").chmod(0o444)
    image = make("x.sif")
    assert not image.marked
    module = plugins.load("runtimes", "apptainer")
    Path("place").mkdir()
    for command in module.prepare(image, "place", {}):
        tools.run(command)
    enter = ["apptainer", "--silent", "exec", "place/image.sif", "cat"]
    marker = json.loads(tools.run([*enter, f"/{trainer_image.MARKER}"]))
    assert marker == {"image_id": image.digest, "image": "x"}
    assert tools.run([*enter, "/etc/os-release"]) == "ID=test"
    assert Path("x.sif").read_bytes() == before
    with pytest.raises(Error, match="cat: /etc/nothing: No such file or directory"):
        tools.run([*enter, "/etc/nothing"])


@pytest.mark.skipif(not shutil.which("apptainer"), reason="apptainer is not installed")
@pytest.mark.ci
def test_a_sif_that_cannot_be_run_is_an_error_and_not_one_that_sets_nothing(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"] + os.pathsep + "/usr/bin:/bin:/usr/sbin:/sbin")
    tools.run(["apptainer", "build", "x.sif", runnable_root()])
    content = Path("x.sif").read_bytes()
    Path("x.sif").write_bytes(content[: len(content) // 2])
    with pytest.raises(Error, match=r"x\.sif: apptainer cannot run sh in it \(exit code 255\): F"):
        make("x.sif")
    assert not Path(trainer_image.image_path("x")).exists()


def test_the_digest_of_an_archive_is_that_of_its_manifest_not_of_the_file():
    assert make(archive()).digest != digest(Path("x.tar").read_bytes())
