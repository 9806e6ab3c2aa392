"""train.py checks that it runs in the image of its run, and its log has the proof."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.images import runtimes
from dlbench.log import event_log
from dlbench.trainer import containment

WORKFLOW_SCRIPTS = Path(__file__).parents[2] / "workflow_scripts"
MARKER = {"image_id": "build-1", "environment": "train"}


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """The place where an image has its marker; here there is none yet."""
    path = tmp_path / "dlbench-image.json"
    monkeypatch.setattr(containment, "IMAGE_MARKER", path)
    return path


def refused(runtime, image_id):
    with pytest.raises(Error) as error:
        containment.check(runtime, image_id)
    return str(error.value)


def test_the_trainer_looks_where_images_have_their_marker():
    assert Path("/", runtimes.MARKER) == containment.IMAGE_MARKER


def test_on_bare_metal_there_is_nothing_to_prove(marker):
    assert containment.check("bare", None) is None


def test_a_run_on_bare_metal_is_refused_inside_an_image(marker):
    marker.write_text(json.dumps(MARKER))
    assert refused("bare", None) == (
        f"runtime bare was asked for, but this is inside the image build-1: {marker} is there"
    )


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "docker", "charliecloud", "udocker"])
def test_inside_its_image_a_run_has_the_marker_as_proof(marker, runtime):
    marker.write_text(json.dumps(MARKER))
    assert containment.check(runtime, "build-1") == MARKER


@pytest.mark.parametrize("runtime", ["apptainer", "udocker"])
def test_a_run_in_a_container_is_refused_outside_with_the_likely_causes(marker, runtime):
    message = refused(runtime, "build-1")
    assert message.startswith(f"runtime {runtime} was asked for, but this is not in an image")
    assert f"{marker} is missing" in message
    assert "--software-deployment-method apptainer" in message
    assert "lets the host's files through" in message


@pytest.mark.parametrize("image_id", ["build-2", None, ""])
def test_another_image_is_refused_with_both_names(marker, image_id):
    marker.write_text(json.dumps(MARKER))
    assert refused("podman", image_id) == (
        f"runtime podman was to be in the image {image_id}, but this is the image build-1"
    )


@pytest.mark.parametrize("runtime", ["bare", "podman"])
@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"3", b"{}", b"null", b"\xff\xfe"])
def test_a_marker_that_is_none_of_ours_is_refused(marker, runtime, content):
    marker.write_bytes(content)
    assert f"{marker} is not the marker of an image of ours: " in refused(runtime, "build-1")


def test_a_marker_that_is_a_folder_is_refused(marker):
    marker.mkdir()
    assert "is not the marker of an image of ours: IsADirectoryError" in refused("bare", None)


def trained(tmp_path, *flags, content=None):
    """What a trainer says that finds this marker, or none. Returns (process, its log)."""
    marker = tmp_path / "marker.json"
    if content:
        marker.write_text(json.dumps(content))
    program = "import pathlib; from dlbench.trainer import containment, train;"
    program += f"containment.IMAGE_MARKER = pathlib.Path({str(marker)!r});"
    log = tmp_path / "train.jsonl"
    words = [
        "--model=lenet5", "--dataset=synthetic", "--batch-per-device=4", "--steps=2",
        "--warmup-steps=0", "--sample-every-s=0", f"--log={log}", *flags,
    ]  # fmt: skip
    finished = subprocess.run(
        [sys.executable, "-c", program + "train.main(None)", *words],
        cwd=WORKFLOW_SCRIPTS,
        capture_output=True,
        text=True,
        check=False,
    )
    return finished, list(event_log.read(log))


@pytest.mark.parametrize("content", [None, MARKER], ids=["bare", "podman"])
def test_the_log_of_a_run_begins_with_the_proof(tmp_path, content):
    flags = ["--runtime=podman", "--image-id=build-1"] if content else []
    finished, log = trained(tmp_path, *flags, content=content)
    assert finished.returncode == 0, finished.stderr
    assert log[0]["event"] == "begin"
    assert log[0]["containment"] == content
    assert log[-1]["status"] == "ok"


def test_a_refused_run_says_so_in_its_log_and_trains_nothing(tmp_path):
    finished, (end,) = trained(tmp_path, "--runtime=podman", "--image-id=build-1")
    assert finished.returncode == 1
    assert end["event"] == "run_end"
    assert end["status"] == "failed"
    assert "this is not in an image" in end["message"]
    assert end["message"] in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment whose lock file has two packages; the folder of what is installed in it."""
    project = tmp_path / "envs/mine"
    installed = project / ".venv/lib/python3/site-packages"
    for name, version in (("fast_sums", "2.1"), ("other", "1.0+cpu")):
        (installed / name).mkdir(parents=True)
        described = installed / f"{name}-{version}.dist-info"
        described.mkdir()
        (described / "RECORD").write_text(f"{name}/__init__.py,,\n")
        (described / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (project / "uv.lock").write_text(
        'version = 1\n\n[[package]]\nname = "fast-sums"\nversion = "2.1"\nsource = {}\n\n'
        '[[package]]\nname = "other"\nversion = "1.0+cpu"\n'
    )
    monkeypatch.setattr(sys, "prefix", str(project / ".venv"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(installed))
    return installed


def imported(monkeypatch, name, folder):
    module = type(sys)(name)
    module.__file__ = str(folder / name / "__init__.py")
    monkeypatch.setitem(sys.modules, name, module)


def test_what_is_imported_from_the_environment_is_as_its_lock_file_says(environment, monkeypatch):
    for name in ("fast_sums", "other"):
        imported(monkeypatch, name, environment)
    imported(monkeypatch, "mine", environment.parents[5])  # a user's own, which no lock file names
    containment.check_imported("bare", ["fast_sums"])


def test_a_package_from_elsewhere_is_refused_with_its_place(environment, monkeypatch, tmp_path):
    imported(monkeypatch, "fast_sums", tmp_path / "modules")
    for needed in ((), ("fast_sums",)):
        with pytest.raises(Error, match=r"package fast_sums was imported from .*modules/fast_sums"):
            containment.check_imported("bare", needed)
    shutil.rmtree(environment / "fast_sums")  # elsewhere alone
    with pytest.raises(Error, match="named by PYTHONPATH"):
        containment.check_imported("bare", ["fast_sums"])
    containment.check_imported("apptainer", ["fast_sums"])


def test_another_version_than_the_lock_files_is_refused_where_it_is_imported(
    environment, monkeypatch
):
    (environment / "fast_sums-2.1.dist-info").rename(environment / "fast_sums-2.2.dist-info")
    containment.check_imported("bare", [])
    imported(monkeypatch, "fast_sums", environment)
    with pytest.raises(Error, match=r"expected fast-sums 2\.1 as in .*mine/uv\.lock, found 2\.2"):
        containment.check_imported("bare", [])
    (environment.parents[3] / "uv.lock").unlink()
    containment.check_imported("bare", [])


def test_the_real_trainer_names_what_pythonpath_brings(tmp_path):
    shutil.copytree(Path(sysconfig.get_path("purelib"), "absl"), tmp_path / "absl")
    program = [sys.executable, WORKFLOW_SCRIPTS / "train.py", "--model", "lenet5"]
    program += ["--dataset", "synthetic", "--batch-per-device", "8", "--steps", "1"]
    finished = subprocess.run(
        [*program, "--log", tmp_path / "train.jsonl"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert finished.returncode == 1
    assert f"package absl was imported from {tmp_path / 'absl'}" in finished.stderr
    assert "Traceback" not in finished.stderr
    (*_, end) = event_log.read(tmp_path / "train.jsonl")
    assert (end["event"], end["status"]) == ("run_end", "failed")
