"""processes and start_processes.py: real small children, of which none is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.starting import start_processes
from support.machines.processes import alive

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_processes.py"
# Without site-packages it starts at once, also on a busy machine.
PYTHON = [sys.executable, "-I", "-S", "-c"]
# Each writes a file with its number, `{job}{index}`, and finds itself by it.
CHILD = """
import json, os, signal, sys, time
folder = {folder!r}
config = json.loads(os.environ["TF_CONFIG"])
me = config["task"]["type"] + str(config["task"]["index"])
def there(name):
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.01)
def write(name, text):
    part = os.path.join(folder, "." + name)
    with open(part, "w") as file:
        file.write(text)
    os.rename(part, os.path.join(folder, name))
def ready():
    write("ready-" + me, str(os.getpid()))
"""
SLEEPS = "ready(); time.sleep(60)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(start_processes, "POLL_S", 0.01)
    monkeypatch.setattr(start_processes, "TERM_TIMEOUT_S", 0.3)


def command(folder, python):
    return [*PYTHON, CHILD.format(folder=str(folder)) + python]


def run(folder, jobs, python):
    return start_processes.run(jobs, command(folder, python))


def pids(folder):
    return [int(path.read_text()) for path in folder.glob("ready-*")]


def wait_for(paths):
    deadline = time.monotonic() + 20
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_process_gets_its_own_task_of_one_cluster(tmp_path):
    jobs = {"chief": 1, "worker": 2, "ps": 1}
    assert run(tmp_path, jobs, "write(me, os.environ['TF_CONFIG'])") == 0
    configs = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(configs) == {"chief0", "worker0", "worker1", "ps0"}
    (cluster,) = {json.dumps(config["cluster"]) for config in configs.values()}
    cluster = json.loads(cluster)
    assert {job: len(addresses) for job, addresses in cluster.items()} == jobs
    addresses = [address for job in cluster.values() for address in job]
    assert len(set(addresses)) == 4
    assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}


def test_the_environment_of_the_parent_is_theirs_too(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_TEST", "here")
    assert run(tmp_path, {"worker": 1}, "write(me, os.environ['DLBENCH_TEST'])") == 0
    assert (tmp_path / "worker0").read_text() == "here"


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        ("sys.exit(7)", 7, "exit code 7"),
        ("sys.exit(75)", 75, "exit code 75"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL"),
    ],
)
def test_one_that_fails_ends_the_others_and_is_named(tmp_path, capfd, end, code, how):
    fails = f"if me == 'worker1':\n    there('ready-worker0'); {end}\n{SLEEPS}"
    assert run(tmp_path, {"worker": 2}, fails) == code
    assert capfd.readouterr().err == f"worker 1 failed ({how}); the others are ended\n"
    assert not any(map(alive, pids(tmp_path)))


def test_the_one_that_failed_is_named_after_the_last_words_of_the_others(tmp_path, capfd):
    last_words = (
        "def end(*_):\n    sys.exit('the other is gone')\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"if me == 'ps0':\n    there('ready-chief0'); sys.exit('no memory')\n{SLEEPS}"
    )
    assert run(tmp_path, {"chief": 1, "ps": 1}, last_words) == 1
    assert capfd.readouterr().err.splitlines() == [
        "no memory",
        "the other is gone",
        "ps 0 failed (exit code 1); the others are ended",
    ]


def test_one_that_ignores_the_request_to_end_is_killed(tmp_path):
    ignores = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"if me == 'worker0':\n    there('ready-worker1'); sys.exit(3)\n{SLEEPS}"
    )
    started_at = time.monotonic()
    assert run(tmp_path, {"worker": 2}, ignores) == 3
    assert time.monotonic() - started_at < 10
    (pid,) = pids(tmp_path)
    assert not alive(pid)


def test_those_that_stay_long_after_the_first_has_ended_are_named_and_ended(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(start_processes, "EXIT_TIMEOUT_S", 0.3)
    stay = f"if me == 'chief0':\n    there('ready-ps0'); there('ready-ps1'); sys.exit()\n{SLEEPS}"
    assert run(tmp_path, {"chief": 1, "ps": 2}, stay) == 1
    assert capfd.readouterr().err == "still there 0.3 s after the first ended: ps 0, ps 1\n"
    assert not any(map(alive, pids(tmp_path)))


def test_the_first_may_outlive_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(start_processes, "EXIT_TIMEOUT_S", 0.0)
    late = "if me == 'chief0':\n    there('worker0'); time.sleep(0.2)\nwrite(me, '')"
    assert run(tmp_path, {"chief": 1, "worker": 1}, late) == 0
    assert (tmp_path / "chief0").exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_reach_all(tmp_path, number):
    hears = (
        "def hear(number, _):\n    write(me, signal.Signals(number).name); sys.exit()\n"
        f"signal.signal({int(number)}, hear)\n{SLEEPS}"
    )

    def send():
        wait_for([tmp_path / "ready-worker0", tmp_path / "ready-worker1"])
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    assert run(tmp_path, {"worker": 2}, hears) == 0
    sender.join()
    for name in ("worker0", "worker1"):
        assert (tmp_path / name).read_text() == signal.Signals(number).name


def test_a_command_that_does_not_exist_leaves_nothing_changed(tmp_path):
    before = [signal.getsignal(number) for number in start_processes.FORWARDED]
    with pytest.raises(FileNotFoundError):
        start_processes.run({"worker": 2}, [str(tmp_path / "absent")])
    assert [signal.getsignal(number) for number in start_processes.FORWARDED] == before


# Pods of Kubernetes.

POD = """
import sys
sys.path.insert(0, {room!r})
from dlbench.starting import start_processes
start_processes.PODS_S = 2.0
sys.exit(start_processes.run({jobs!r}, sys.argv[1:]))
"""


def pods(folder, jobs, python):
    """(exit code, messages) of each of two pods that share a folder."""
    shared = {"DLBENCH_POD_HOSTS": "a,b", "DLBENCH_POD_PORT": "7000"}
    shared["DLBENCH_POD_FOLDER"] = str(folder / "pods")
    driver = [sys.executable, "-c", POD.format(room=str(PROGRAM.parent), jobs=jobs)]
    started = [
        subprocess.Popen(
            [*driver, *command(folder, python)],
            env=os.environ | shared | {"JOB_COMPLETION_INDEX": str(index)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    said = [pod.communicate(timeout=60)[1] for pod in started]
    return [(pod.returncode, text) for pod, text in zip(started, said, strict=True)]


def test_tasks_are_spread_over_the_pods_and_each_knows_the_addresses_of_all(tmp_path):
    jobs = {"chief": 1, "worker": 2, "ps": 1}
    late = "if me == 'ps0': there('chief0'); time.sleep(0.3)\n"
    found = pods(tmp_path, jobs, late + "write(me, os.environ['TF_CONFIG'])")
    assert found == [(0, ""), (0, "")]
    configs = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*0")}
    cluster = {"chief": ["a:7000"], "ps": ["b:7002"], "worker": ["a:7001", "b:7003"]}
    assert configs["ps0"] == {"cluster": configs["chief0"]["cluster"],
                              "task": {"type": "ps", "index": 0}}  # fmt: skip
    assert configs["ps0"]["cluster"] == cluster
    assert start_processes.layout({"chief": 1, "worker": 3, "ps": 3}, 3) == [
        [("chief", 0), ("ps", 2), ("worker", 0)],
        [("ps", 0), ("worker", 1)],
        [("ps", 1), ("worker", 2)],
    ]


@pytest.mark.parametrize("failing", ["worker0", "worker1"])
def test_a_process_that_fails_ends_those_of_all_pods_and_its_exit_code_is_theirs(tmp_path, failing):
    other = "worker1" if failing == "worker0" else "worker0"
    fails = f"if me == {failing!r}:\n    there('ready-{other}'); sys.exit(7)\n{SLEEPS}"
    found = pods(tmp_path, {"worker": 2}, fails)
    assert [code for code, _ in found] == [7, 7]
    assert any("of another pod is 7" in said for _, said in found)
    assert not any(map(alive, pids(tmp_path)))


def test_pod_0_waits_for_the_others_only_so_long(tmp_path):
    found = pods(tmp_path, {"worker": 2}, "time.sleep(4 if me == 'worker1' else 0)")
    assert found == [(1, "other pods have not ended 2 s after this one\n"), (0, "")]


# Copies.

# Each writes a file with its number.
COPY = CHILD.replace('config = json.loads(os.environ["TF_CONFIG"])\n', "").replace(
    'config["task"]["type"] + str(config["task"]["index"])', '"copy" + os.environ["DLBENCH_COPY"]'
)
WRITES_CORES = "write(me, ' '.join(map(str, sorted(os.sched_getaffinity(0)))))"
WRITES_GPUS = "write(me, os.environ.get('CUDA_VISIBLE_DEVICES', 'unset'))"


def copy(folder, python):
    return [*PYTHON, COPY.format(folder=str(folder)) + python]


def written(folder):
    return [path.read_text() for path in sorted(folder.glob("copy*"))]


def test_each_copy_knows_its_number_and_is_waited_for(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(start_processes, "EXIT_TIMEOUT_S", 0.0)
    waits = "there('copy0') if me == 'copy2' else None\ntime.sleep(0.2)\nwrite(me, me)"
    assert start_processes.run_copies(3, copy(tmp_path, waits)) == 0
    assert written(tmp_path) == ["copy0", "copy1", "copy2"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_copy_keeps_to_cores_of_its_own_and_the_starter_to_its(tmp_path):
    before = os.sched_getaffinity(0)
    assert start_processes.run_copies(2, copy(tmp_path, WRITES_CORES), cores_each=1) == 0
    assert written(tmp_path) == [str(core) for core in sorted(before)[:2]]
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("visible", "each", "found"),
    [
        (None, 1, ["0", "1"]),
        (None, 2, ["0,1", "2,3"]),
        ("3,1", 1, ["3", "1"]),
        ("7,5,3,1,0", 2, ["7,5", "3,1"]),
        ("GPU-8932f937, MIG-1/2/0", 1, ["GPU-8932f937", "MIG-1/2/0"]),
    ],
)
def test_each_copy_sees_gpus_of_its_own(tmp_path, monkeypatch, visible, each, found):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert start_processes.run_copies(2, copy(tmp_path, WRITES_GPUS), gpus_each=each) == 0
    assert written(tmp_path) == found
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


WRITES_PREALLOCATION = "write(me, os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE', 'unset'))"


@pytest.mark.parametrize(("visible", "found"), [("0,1", "unset"), ("0,0", "false")])
def test_jax_takes_the_memory_of_a_gpu_ahead_unless_copies_share_it(
    tmp_path, monkeypatch, visible, found
):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    command = copy(tmp_path, WRITES_PREALLOCATION)
    assert start_processes.run_copies(2, command, gpus_each=1) == 0
    assert written(tmp_path) == [found, found]


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        ("0,1,2", "2 copies of 2 GPUs each need 4; found 3"),
        ("0,1,-1,2,3", "2 copies of 2 GPUs each need 4; found 2"),
        ("", "2 copies of 2 GPUs each need 4; found 0"),
    ],
)
def test_too_few_gpus_start_nothing(tmp_path, monkeypatch, visible, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(Error) as error:
        start_processes.run_copies(2, copy(tmp_path, WRITES_GPUS), gpus_each=2)
    assert str(error.value) == message
    assert not list(tmp_path.iterdir())


# The program.


def program(*words, **options):
    command = [sys.executable, PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_the_program_starts_what_follows_the_dashes(tmp_path):
    child = command(tmp_path, "write(me, ' '.join(sys.argv[1:]))")
    finished = program("--jobs", "chief=1,worker=2", "--", *child, "--log", "x y", "--", "-z")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "chief0": "--log x y -- -z",
        "worker0": "--log x y -- -z",
        "worker1": "--log x y -- -z",
    }


@pytest.mark.parametrize("jobs", ["worker", "worker=x", "worker=1,ps", "worker=1=2", ""])
def test_the_program_says_how_jobs_are_written(jobs):
    finished = program("--jobs", jobs, "--", "true")
    assert finished.returncode == 2
    assert f"expected chief=1,worker=2, found {jobs!r}" in finished.stderr


def test_the_program_leaves_nothing_when_it_is_asked_to_end(tmp_path):
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "--jobs", "worker=2", "--", *command(tmp_path, SLEEPS)],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for([tmp_path / "ready-worker0", tmp_path / "ready-worker1"])
    process.terminate()
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "failed (killed by SIGTERM); the others are ended" in messages
    assert not any(map(alive, pids(tmp_path)))


def test_the_program_starts_copies_with_cores_and_gpus_of_their_own(tmp_path):
    gpus = WRITES_GPUS.replace("write(me", "write('gpus'")
    finished = program(
        *("--copies", "1", "--cores-each", "1", "--gpus-each", "2", "--"),
        *copy(tmp_path, f"{gpus}; {WRITES_CORES}"),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "4,2,0"},
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert (tmp_path / "gpus").read_text() == "4,2"
    assert written(tmp_path) == [str(min(os.sched_getaffinity(0)))]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--copies", "0", "--", "true"], 2, "expected a whole number of at least 1, found '0'"),
        (["--copies", "two", "--", "true"], 2, "expected a whole number of at least 1, found 'tw"),
        (["--copies", "2", "--jobs", "worker=1", "--", "true"], 2, "not allowed with argument"),
        (["--jobs", "worker=1", "--cores-each", "1", "--", "true"], 2, "are for --copies"),
        (["--copies", "2", "--"], 2, "expected a command after --, found none"),
        (["--", "true"], 2, "one of the arguments --jobs --copies is required"),
        (["--copies", "2", "--cores-each", "5000", "--", "true"], 1,
         "error: 2 copies of 5000 cores each need 10000; found"),
    ],
)  # fmt: skip
def test_the_program_names_what_it_cannot_start(words, code, message):
    finished = program(*words)
    assert finished.returncode == code
    assert message in finished.stderr
