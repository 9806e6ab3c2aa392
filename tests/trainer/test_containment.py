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
TWO_STEPS = ["--model=lenet5", "--dataset=synthetic", "--batch-per-device=4", "--steps=2",
             "--warmup-steps=0", "--sample-every-s=0"]  # fmt: skip

pytestmark = pytest.mark.ci


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


def test_a_run_on_bare_metal_needs_no_proof_and_is_refused_inside_an_image(marker):
    assert containment.check("bare", None) is None
    marker.write_text(json.dumps(MARKER))
    assert refused("bare", None) == (
        f"runtime bare was asked for, but this is inside the image build-1: {marker} is there"
    )


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "docker", "charliecloud", "udocker"])
def test_a_run_in_an_image_has_its_marker_as_proof_and_is_refused_outside(marker, runtime):
    message = refused(runtime, "build-1")
    assert message.startswith(f"runtime {runtime} was asked for, but this is not in an image")
    assert f"{marker} is missing" in message
    assert "--software-deployment-method apptainer" in message
    assert "lets the host's files through" in message
    marker.write_text(json.dumps(MARKER))
    assert containment.check(runtime, "build-1") == MARKER


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


def test_the_log_of_a_run_in_an_image_begins_with_the_proof_and_outside_it_trains_nothing(tmp_path):
    marker = tmp_path / "marker.json"
    program = "import pathlib; from dlbench.trainer import containment, train;"
    program += f"containment.IMAGE_MARKER = pathlib.Path({str(marker)!r}); train.main(None)"
    words = [sys.executable, "-c", program, *TWO_STEPS, "--runtime=podman", "--image-id=build-1"]
    how = {"cwd": WORKFLOW_SCRIPTS, "capture_output": True, "text": True}
    refused = subprocess.run([*words, f"--log={tmp_path / 'outside'}"], **how)
    assert refused.returncode == 1
    (end,) = event_log.read(tmp_path / "outside")
    assert (end["event"], end["status"]) == ("run_end", "failed")
    assert "this is not in an image" in end["message"]
    assert end["message"] in refused.stderr
    assert "Traceback" not in refused.stderr
    marker.write_text(json.dumps(MARKER))
    trained = subprocess.run([*words, f"--log={tmp_path / 'inside'}"], **how)
    assert trained.returncode == 0, trained.stderr
    begin, *_, end = event_log.read(tmp_path / "inside")
    assert (begin["event"], begin["containment"]) == ("begin", MARKER)
    assert end["status"] == "ok"


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
    program = [sys.executable, WORKFLOW_SCRIPTS / "train.py", *TWO_STEPS]
    finished = subprocess.run(
        [*program, "--log", tmp_path / "train.jsonl"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert finished.returncode == 1
    assert f"package absl was imported from {tmp_path / 'absl'}" in finished.stderr
    assert "Traceback" not in finished.stderr
    begin, *_, end = event_log.read(tmp_path / "train.jsonl")
    assert begin["containment"] is None  # on bare metal
    assert (end["event"], end["status"]) == ("run_end", "failed")
