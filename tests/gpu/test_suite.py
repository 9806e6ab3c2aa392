"""The checks for GPUs run on CPUs as far as that goes; one that fails or hangs ends no other."""

import json
import subprocess
import sys
import time

import pytest

from dlbench.study import trainer_environments
from dlbench.trainer import engine
from tests.gpu import REPOSITORY, device, suite
from tests.gpu.__main__ import CHECKS  # of all files of checks/
from tests.gpu.suite import BESIDE, FAILED, PASSED, Check

CPU = device.Device("cpu")
OF_NO_FRAMEWORK = [name for name, check in CHECKS.items() if not check.framework]


def suite_of(python, file, *names):
    """(exit code, results) of the suite as it is started."""
    command = [str(python), "-m", "tests.gpu", "--device", "cpu", "--file", str(file), *names]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert file.is_file(), done.stdout + done.stderr
    return done.returncode, json.loads(file.read_text())["checks"]


@pytest.mark.parametrize("framework", ["pytorch", pytest.param("jax", marks=pytest.mark.slow)])
def test_the_checks_of_a_framework_pass_on_cpus_or_say_why_they_cannot(framework, tmp_path):
    python = REPOSITORY / trainer_environments.trainer_python(engine.environment(framework))
    if not python.exists():
        pytest.skip(f"{python} is not there; dlbench environment makes it")
    names = [name for name, check in CHECKS.items() if check.framework == framework]
    file = tmp_path / "checks.json"
    code, found = suite_of(python, file, *names, *OF_NO_FRAMEWORK)
    page_text = file.with_suffix(".md").read_text()
    assert {n: c["faults"] for n, c in found.items() if c["status"] == FAILED} == {}, page_text
    assert code == 0 and found.keys() == {*names, *OF_NO_FRAMEWORK}
    passed = {check for check, one in found.items() if one["status"] == PASSED}
    of_gpus_only = {"selection", "out_of_memory", "faster", "largest_batch"}
    assert passed == {name for name in names if name.partition("-")[0] not in of_gpus_only}
    for name in found.keys() - passed:
        assert "no GPU" in " ".join(found[name]["notes"]), name
    for name, one in found.items():
        assert f"## {name}" in page_text and one["title"] in page_text


def test_what_is_checked_again_replaces_only_its_own_result(tmp_path):
    file = tmp_path / "checks.json"
    suite_of(sys.executable, file, "facts")
    (_, both) = suite_of(sys.executable, file, "power_limit")
    assert list(both) == ["facts", "power_limit"]


def reported(function, tmp_path, monkeypatch):
    """The report of a function as a check, in this process."""
    monkeypatch.setitem(CHECKS, "tried", Check("tried", "it holds", function, 1, BESIDE, ""))
    suite.run_here("tried", CPU, tmp_path / "report.json")
    return json.loads((tmp_path / "report.json").read_text())


def test_a_check_goes_on_after_a_fault_and_keeps_what_it_measured(tmp_path, monkeypatch):
    def tried(report, where):
        report.expect(1 > 2, "one is not above two")
        report.number("a rate", 2.0, "GB/s")

    found = reported(tried, tmp_path, monkeypatch)
    assert found["status"] == FAILED and found["faults"] == ["one is not above two"]
    assert found["numbers"] == [{"name": "a rate", "value": 2.0, "unit": "GB/s"}]


def test_single_gpus_are_not_named_and_numbers_are_such_as_json_has(tmp_path, monkeypatch):
    def tried(report, where):
        report.note("of GPU-d66c25e2-c1ee-1091-56db-4cc4cd616185 and GPU-00000000-0000")
        report.number("furthest", float("inf"))

    found = reported(tried, tmp_path, monkeypatch)
    assert found["notes"] == ["of GPU-(uuid) and GPU-00000000-0000"]
    assert found["numbers"][0]["value"] == "inf"


def test_a_check_that_does_not_end_is_ended_with_all_that_it_started():
    """That of the facts gets no time at all."""
    begin = time.monotonic()
    found = suite.run(CHECKS["facts"]._replace(limit_s=0.01), CPU)
    assert time.monotonic() - begin < 10
    assert found["status"] == FAILED
    assert found["faults"] == ["not done after 0.05 s, and ended"]


def test_the_page_says_machine_verdicts_and_numbers():
    one = {"title": "it holds", "date": "2026-11-26T17:00:00Z", "seconds": 1.5, "status": FAILED}
    one |= {"notes": ["seen"], "faults": ["was not so"], "numbers": []}
    one["numbers"].append({"name": "rate", "value": 2.5, "unit": "GB/s"})
    machine = {"gpus": ["1 x Some GPU"], "driver": "580", "cuda_driver": "13.0", "cores": 8}
    machine |= {"cpu": "Some CPU", "virtual": False, "memory_gib": 64, "versions": {"torch": "2"}}
    text = suite.page({"machine": machine, "commit": "abc", "checks": {"tried": one}})
    for message in (
        "1 x Some GPU, driver 580 (CUDA 13.0)",
        "8 cores of Some CPU, 64 GiB",
        "0 passed, 1 failed, 0 not possible",
        "| tried | **failed** | 1.5 | 2026-11-26 | it holds |",
        "- fault: was not so",
        "- rate: 2.5 GB/s",
    ):
        assert message in text
