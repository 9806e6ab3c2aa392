"""Each container runtime that can be installed here, as root and as an ordinary user."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from dlbench.common import plugins
from dlbench.images.runtimes import Container
from dlbench.log import event_log
from support.campaigns.campaign import TRAINED

PLACES = [
    *(
        pytest.param(place, marks=pytest.mark.slow)
        for place in (
            ("root", "apptainer", "start=command"),
            ("root", "udocker", "execmode=P2"),
            ("root", "udocker", "execmode=S1"),
            ("user", "apptainer", "start=command"),
            ("user", "charliecloud", ""),
        )
    ),
    ("user", "podman", ""),
]
PROBE = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "folder": os.getcwd(), "user": os.getuid(),
    "environment": dict(os.environ), "input": sorted(os.listdir("/input")),
    "marker": json.load(open("/etc/dlbench-image.json")),
}))
open("written", "w").close()
try:
    open("/input/new", "w").close()
except OSError:
    sys.exit(7)
sys.exit(8)
"""


@pytest.fixture(scope="session")
def contents():
    """Digests of the files visible inside, for each runtime."""
    return {}


# Of the session, so that all tests of one place run before those of the next.
@pytest.fixture(scope="session", params=PLACES, ids="-".join)
def where(request, projects):
    """(project, runtime, options) with a prepared image, which is removed afterwards."""
    who, runtime, options = request.param
    projects[who].prepared(runtime, options)
    yield projects[who], runtime, options
    projects[who].remove(runtime, options)


def read(project, form):
    return json.loads((project.folder / form).read_text())


def train(where, name, *flags, **fields):
    """Train a run under supervision. Returns its record."""
    command, folder = where[0].start_run(name, *where[1:], *flags, **fields)
    finished = where[0].run(*command)
    assert finished.returncode == 0, finished.stdout
    return json.loads((folder / "run.json").read_text())


def name_of(where, purpose):
    return "-".join([purpose, *where[1:]]).replace("=", "-")


@pytest.mark.ci
def test_a_program_gets_its_arguments_environment_binds_and_folder(where):
    project, runtime, options = where
    module = plugins.load("runtimes", runtime)
    form = read(project, project.prepared(runtime, options))
    given = project.folder / "it's given $(here)"
    given.mkdir(exist_ok=True)
    (given / "file").touch()
    shutil.chown(given, project.user or "root")
    (project.folder / "probe.py").write_text(PROBE)
    container = Container(
        image=form["prepared"],
        folder=str(project.folder),
        binds=(f"{given}:/input:ro",),
        environment={**form["environment"], "ASKED": "a b"},
        options=form["options"],
        name="probe",
    )
    command_line = ["a b", "$(id)", "it's", "ü", "*"]
    command = module.command(container, [form["python"], "probe.py", *command_line])
    variables = {"OMPI_TEST": "1; 2", "CUDA_VISIBLE_DEVICES": "", "DLBENCH_COPY": "3"}
    finished = project.run("env", *(f"{k}={v}" for k, v in variables.items()), *command)
    read_only = runtime not in ("charliecloud", "udocker")  # these have no such binds
    assert finished.returncode == (7 if read_only else 8), finished.stdout
    visible = json.loads(finished.stdout.strip().splitlines()[-1])
    assert visible["arguments"] == command_line
    assert visible["folder"] == str(project.folder)
    assert visible["input"] == ["file"]
    assert visible["environment"].items() >= {**variables, "ASKED": "a b"}.items()
    assert visible["marker"]["image_id"] == form["image_id"]
    written = project.folder / "written"
    assert written.stat().st_uid == project.folder.stat().st_uid
    written.unlink()
    (given / "new").unlink(missing_ok=True)


@pytest.mark.ci
def test_what_a_killed_supervisor_leaves_is_ended_before_the_next_run_which_is_in_its_image(where):
    project, runtime, options = where
    name = name_of(where, "orphaned")
    command, folder = project.start_run(name, *where[1:], steps=10**7)
    process = project.start(*command)
    try:
        wait_for_a_step(folder, process)
        os.kill(supervisor_of(name), signal.SIGKILL)
        process.wait(60)
    finally:
        process.kill()
    # proot does not pass on that its parent is gone, and an engine's containers have another one.
    assert trainers(name) or where[1:] != ("udocker", "execmode=P2")
    found = train(where, name_of(where, "next"))
    assert not trainers(name)
    form = read(project, project.prepared(runtime, options))
    assert found["status"] in TRAINED, found["message"]
    provenance = found["provenance"]
    assert [marker["image_id"] for marker in provenance["containment"]] == [form["image_id"]]
    assert provenance["container"]["start"] == "command"
    assert provenance["container"]["digest"] == found["made_from"]["environment"]
    assert provenance["versions"]["tensorflow"] == form["packages"]["tensorflow"]
    assert found["summary"]["start_s"] > 0
    check_all_found(found)


def test_two_ranks_under_mpirun_outside_are_two_ranks_inside(where):
    found = train(
        where, name_of(where, "two"), strategy="horovod", launcher="mpirun", devices_per_node=2
    )
    assert found["status"] in TRAINED, found["message"]
    markers = found["provenance"]["containment"]
    assert len(markers) == 2 and markers[0] == markers[1] and markers[0]["image_id"]
    assert found["provenance"]["strategy_settings"]["controller"] == "mpi"
    assert len(found["files"]) == 2
    check_all_found(found)


def check_all_found(record):
    """Check that the supervisor found the run's processes; else it could not measure neighbours."""
    summary = record["summary"]
    assert summary["others_cpu_cores"] is not None, summary["neighbours_unknown"]


@pytest.mark.ci
def test_a_signal_reaches_the_trainer_and_leaves_no_process(where):
    project = where[0]
    name = name_of(where, "endless")
    command, folder = project.start_run(name, *where[1:], steps=10**7)
    process = project.start(*command)
    try:
        wait_for_a_step(folder, process)
        os.kill(supervisor_of(name), signal.SIGTERM)
        assert process.wait(60) != 0
    finally:
        process.kill()
    # Moved aside: an interrupted run has no result.
    (log,) = folder.glob("train.attempt*.jsonl")
    ends = [event for event in event_log.read(log) if event["event"] == "run_end"]
    # On a busy machine it may have been killed before it could write that.
    assert [end["message"] for end in ends] in ([event_log.STOPPED_BY_SIGNAL], [])
    time.sleep(1)
    assert not trainers(name)


def test_a_runtime_that_lets_the_hosts_files_through_is_found_out(roots, place):
    # Debian's proot does not contain a container of udocker's execmode P1, and says nothing.
    roots.make("plain", place / "base.tar")
    form = "results/images/plain/udocker-P1.json"
    prepared = roots.prepare("plain", form, "udocker", {"execmode": "P1"})
    assert prepared.returncode == 2
    assert "error: image plain under udocker: " in prepared.stdout
    assert "is installed" not in prepared.stdout  # packages are looked for in images only
    assert not (roots.folder / form).exists()


def test_its_image_has_the_same_content_as_under_the_others(where, contents):
    project, runtime, options = where
    (project.folder / "tree.py").write_text(TREE)
    form = read(project, project.prepared(runtime, options))
    container = Container(form["prepared"], str(project.folder), options=form["options"])
    module = plugins.load("runtimes", runtime)
    finished = project.run(*module.command(container, [form["python"], "tree.py"]))
    assert finished.returncode == 0, finished.stdout
    contents[where] = finished.stdout.strip().splitlines()[-1]
    assert len(set(contents.values())) == 1, contents


TREE = """
import hashlib, os
total = hashlib.sha256()
tops = "/opt", "/usr/bin", "/usr/lib/python3.11", "/etc/dlbench-image.json", "/etc/os-release"
for top in tops:
    for root, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - {"__pycache__"})  # written by whoever may
        for name in sorted(files):
            path = os.path.join(root, name)
            link = os.path.islink(path)
            what = os.readlink(path) if link else str(os.path.getsize(path))
            total.update(f"{path} {what}\\n".encode())
            if not link and name.endswith((".py", ".json", ".txt")):
                total.update(open(path, "rb").read())
    if os.path.isfile(top):
        total.update(open(top, "rb").read())
print(total.hexdigest())
"""


def wait_for_a_step(folder, process):
    log = folder / "train.jsonl"
    deadline = time.monotonic() + 120
    while not (log.is_file() and '"event": "step"' in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)


def supervisor_of(name):
    return next(
        pid
        for pid in processes(name)
        if b"start_run.py" in command_line(pid)
        and not command_line(pid).startswith(b"/usr/sbin/runuser")
    )


def processes(name):
    """Processes with a run's name in their command lines."""
    every = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    return [pid for pid in every if name.encode() in command_line(pid)]


def trainers(name):
    """The command lines of a run's trainers."""
    return [command_line(pid) for pid in processes(name) if b"train.py" in command_line(pid)]


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
