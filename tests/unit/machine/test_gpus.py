"""gpus: which a process sees, their facts and their readings.

NVML itself was not run: no GPU is here, so a stand-in takes its place.
"""

import json
import os
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest

from dlbench.log import event_fields
from dlbench.machine import facts, gpus
from dlbench.machine.gpus import throttle_reasons, visible_gpus
from dlbench.trainer import sampling
from dlbench.trainer.sampling import Sampler
from support.machines import topologies
from support.machines.nvidia_smi import NvidiaSmi
from support.trainers.sampling_stand_ins import NVML, Clock, Log, NVMLError


@pytest.fixture
def nvml(monkeypatch):
    stand_in = NVML(Clock())
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_equal_gpus_are_one_kind_and_each_is_named(nvml):
    nvml.broken = {"nvmlDeviceGetMigMode"}
    unknown = {}
    found = gpus.gather_facts((0, 1), unknown)
    (kind,) = found["kinds"]
    assert (found["driver"], found["cuda_driver"]) == ("550.54.15", "12.4")
    assert (kind["name"], kind["memory_bytes"], kind["nvlinks"]) == ("NVIDIA H100", 80 * 2**30, 12)
    assert (kind["pcie_generation"], kind["pcie_width"]) == (5, 16)
    assert (kind["power_limit_w"], kind["ecc"], kind["persistence"]) == (700, True, True)
    assert (kind["compute_mode"], kind["compute_capability"]) == ("exclusive process", "9.0")
    assert kind["mig"] is None and "nvmlDeviceGetMigMode" in unknown["gpus.nvmlDeviceGetMigMode"]
    assert [device["uuid"] for device in found["devices"]] == list(NVML.UUIDS[:2])
    assert [device["pcie_generation"] for device in found["devices"]] == [1, 2]
    assert found["devices"][0]["pci"] == "00000000:01:00.0"
    assert found["links"] == [[0, 1, "NVLink"]]
    assert nvml.users == 0
    assert gpus.gather_facts((1,), {})["kinds"] == [kind]


def test_gpus_without_nvlink_say_what_is_between_them(nvml):
    nvml.NVLINKED = False
    found = gpus.gather_facts((0,), {})
    assert (found["kinds"][0]["nvlinks"], found["links"]) == (0, [[0, 1, "SYS"]])


def test_a_mig_device_has_its_own_name_and_its_boards_limits(nvml):
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: type("M", (), {"total": 10 * 2**30})
    (kind,) = gpus.gather_facts(("MIG-cccc3333-0000",), {})["kinds"]
    assert (kind["name"], kind["memory_bytes"]) == ("NVIDIA H100 MIG 1g.10gb", 10 * 2**30)
    assert kind["power_limit_w"] == 700


def test_no_driver_or_a_lost_gpu_is_said_and_harms_nothing(nvml):
    unknown = {}
    nvml.broken = {"driver"}
    assert gpus.gather_facts((0,), unknown) == gpus.NONE
    assert "NVML Shared Library Not Found" in unknown["gpus"]
    nvml.broken = {1}
    found = gpus.gather_facts((0, 1), unknown)
    assert len(found["devices"]) == 1 and unknown["gpus.1"] == "GPU is lost"


def test_runs_without_gpus_do_not_start_nvml(nvml, monkeypatch):
    monkeypatch.setattr(NVML, "nvmlInit", lambda self: pytest.fail("NVML was started"))
    assert facts.gather(())["hardware"]["gpus"]["kinds"] == []


@pytest.mark.parametrize(
    ("package", "cuda", "driver", "needed"),
    [
        ("nvidia-cuda-runtime", "13.2.86", "535.104.05", "580.65.06"),
        ("nvidia-cuda-runtime-cu12", "12.9.79", "470.57.02", "525.60.13"),
        ("nvidia-cuda-runtime-cu12", "12.9.79", "535.104.05", None),
        ("nothing-of-cuda", "13.2.86", "535.104.05", None),
    ],
)
def test_a_driver_that_is_too_old_for_cuda_is_named_with_both(
    package, cuda, driver, needed, nvml, monkeypatch
):
    def version(name):
        if name != package:
            raise metadata.PackageNotFoundError(name)
        return cuda

    monkeypatch.setattr(gpus.metadata, "version", version)
    monkeypatch.setattr(nvml, "DRIVER", driver)
    message = gpus.describe_old_driver()
    assert (message == "") == (needed is None)
    if needed:
        assert f"CUDA {cuda}, which needs driver {needed} or newer" in message
        assert f"this node has {driver}" in message
    nvml.broken = {"driver"}
    assert gpus.describe_old_driver() == ""


@pytest.mark.parametrize(
    ("cuda", "driver", "needed"),
    [
        ("13.0.96", "575.57.08", "580.65.06"),
        ("13.0.96", "580.65.06", None),
        ("13.0.96", "580.65", "580.65.06"),
        ("12.8.90", "525.60.13", None),
        ("12.8.90", "515.105.01", "525.60.13"),
        ("12.8.90", "1000.1", None),
        ("14.0", "470.1", None),  # of which nothing is known
        ("", "470.1", None),
        ("13.0", "[N/A]", None),
    ],
)
def test_the_oldest_driver_of_a_cuda_is_named_where_a_driver_is_older(cuda, driver, needed):
    assert gpus.newer_driver(cuda, driver) == needed


def test_the_driver_is_the_one_that_nvidia_smi_lists(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.installed_driver() is None
    smi = NvidiaSmi(tmp_path)
    smi.set_driver("535.104.05")
    assert gpus.installed_driver() == "535.104.05"
    smi.set_driver("[N/A]")
    assert gpus.installed_driver() is None
    smi.break_down()
    assert gpus.installed_driver() is None


@pytest.fixture
def places_nvml(monkeypatch):
    stand_in = topologies.NVML([("GPU-aaaa1111-0000", "00000000:1B:00.0")])
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_a_number_that_the_node_lacks_ends_the_list_and_an_empty_one_hides_all_as_for_cuda(
    places_nvml, tree
):
    seen = gpus.visible_places(tree({}), {"CUDA_VISIBLE_DEVICES": "0,3,0"})
    assert [gpu.uuid for gpu in seen] == ["GPU-aaaa1111-0000"]
    assert gpus.visible_places(tree({}), {"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_where_sys_is_not_there_the_place_is_not_known(places_nvml, tree):
    (gpu,) = gpus.visible_places(tree({}), {})
    assert (gpu.pci, gpu.numa_node, gpu.cpus) == ("0000:1b:00.0", None, ())


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetUUID"])
def test_a_driver_that_does_not_start_or_a_gpu_that_is_lost_says_nothing(
    places_nvml, tree, monkeypatch, function
):
    def fail(*_):
        raise places_nvml.NVMLError("Driver Not Loaded, or GPU is lost")

    monkeypatch.setattr(places_nvml, function, fail)
    assert gpus.visible_places(tree({}), {}) is None


MARK = gpus.SUPERVISOR

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


@pytest.fixture
def log():
    return Log()


def gpu_sampler(log, nvml, gpus):
    """A sampler that samples at its start, when asked, and at its stop."""
    return Sampler(log, interval_s=1e6, gpus=gpus, node=False, clock=nvml.clock)


def test_a_driver_that_never_answers_does_not_hold_up_the_end(log, nvml, monkeypatch):
    monkeypatch.setattr(sampling, "PATIENCE_S", 0.05)
    answer = threading.Event()
    sampler = Sampler(log, interval_s=0.02, gpus=(0,), node=False)
    sampler.start()
    nvml.nvmlDeviceGetPowerUsage = lambda handle: answer.wait(10)
    time.sleep(0.06)
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)
    answer.set()
    sampler._thread.join()


def test_a_gpu_is_sampled_in_named_units(log, nvml):
    sampler = gpu_sampler(log, nvml, [1])
    said = {"interval_s": 1e6, "node": False, "gpus": [1], "gpus_not_sampled": None}
    assert sampler.start() == said
    nvml.clock.now_s = 2.5
    sampler.stop()
    assert log.events[-1]["gpus"] == [
        {
            "gpu": 1, "utilisation_percent": 91, "memory_used_bytes": 2 * 2**30, "power_w": 200,
            "temperature_c": 60, "clock_sm_mhz": 1410, "clock_memory_mhz": 1593,
            "other_gpu_processes": 0, "energy_j": 500,
            "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
        }
    ]  # fmt: skip
    assert nvml.users == 0


def test_energy_is_the_difference_of_the_counters_over_all_gpus(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.clock.now_s = 10
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (3000, "GPUs: counter")
    assert [gpu["energy_j"] for gpu in log.events[0]["gpus"]] == [0, 0]
    assert [gpu["energy_j"] for gpu in log.events[-1]["gpus"]] == [1000, 2000]


def test_a_counter_that_power_over_time_contradicts_is_noted(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.clock.now_s, nvml.watts = 10, [300, 200]  # 5000 J by counters, 2000 + 2000 J by power
    totals = sampler.stop()
    note = "power over time is 20 % less than its counter"
    assert (totals["energy_j"], totals["energy_note"]) == (5000, note)


def test_a_counter_that_begins_anew_loses_no_more_than_one_interval(log, nvml):
    sampler = gpu_sampler(log, nvml, [0])
    sampler.start()
    nvml.clock.now_s = 10
    sampler._sample()
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 7000
    assert sampler.stop()["energy_j"] == 1007


def test_without_a_counter_power_is_integrated_by_the_trapezoid_rule(log, nvml):
    nvml.broken.add(ENERGY)
    sampler = gpu_sampler(log, nvml, [0])
    sampler.start()
    for now_s, watts in ((1, 300), (3, 100)):
        nvml.clock.now_s, nvml.watts[0] = now_s, watts
        sampler._sample()
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (200 + 400, "GPUs: integrated power")
    assert [event["gpus"][0]["energy_j"] for event in log.events] == [0, 200, 600, 600]


def test_one_gpu_without_a_counter_makes_the_sum_an_integration(log, nvml):
    counter = nvml.nvmlDeviceGetTotalEnergyConsumption

    def only_the_first(handle):
        if handle:
            raise NVMLError("Not Supported")
        return counter(handle)

    nvml.nvmlDeviceGetTotalEnergyConsumption = only_the_first
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.clock.now_s = 1
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (300, "GPUs: integrated power")


def test_a_gpu_that_fails_for_a_while_is_found_again_and_its_energy_is_whole(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.broken.add(1)
    for now_s in (1, 2):
        nvml.clock.now_s = now_s
        sampler._sample()
    nvml.broken.clear()
    nvml.clock.now_s = 3
    totals = sampler.stop()
    well, failing = zip(*(event["gpus"] for event in log.events), strict=True)
    assert [gpu["power_w"] for gpu in well] == [100] * 4
    assert [gpu["power_w"] for gpu in failing] == [200, None, None, 200]
    assert set(failing[1].values()) == {1, None}
    assert totals["energy_j"] == 900
    assert nvml.found[2:] == [0, 1, 1]  # after where they are


def test_no_energy_is_better_than_a_part_of_it(log, nvml):
    sampler = gpu_sampler(log, nvml, [0, 1])
    sampler.start()
    nvml.broken.add(1)
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)

    sampler = gpu_sampler(log, nvml, [0, 1])
    assert sampler.start()["gpus_not_sampled"] == "GPU 1: GPU is lost"
    nvml.broken.clear()
    totals = sampler.stop()
    assert totals["energy_j"] is None
    assert log.events[-1]["gpus"][1]["power_w"] == 200


def test_readings_that_fail_leave_the_others(log, nvml):
    nvml.broken |= {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses"}
    with gpu_sampler(log, nvml, [0]):
        pass
    gpu = log.events[0]["gpus"][0]
    assert gpu["utilisation_percent"] is gpu["other_gpu_processes"] is None
    assert (gpu["memory_used_bytes"], gpu["power_w"]) == (2**30, 100)


def test_errors_of_the_processs_own_gpus_are_in_the_sample_after_the_kernel_logged_them(
    log, nvml, tmp_path, monkeypatch
):
    kernel = tmp_path / "kmsg"
    line = "4,1,2,-;NVRM: Xid (PCI:0000:{}:00{}): {}, pid=7, name=python{}\n"
    kernel.write_text(line.format("02", "", 79, ", before the run"))
    monkeypatch.setattr(sampling, "KernelLog", lambda *own: gpus.KernelLog(*own, kernel))
    sampler = gpu_sampler(log, nvml, [1])
    sampler.start()
    with kernel.open("a") as file:
        file.write(line.format("02", " GPU-I:05", 31, ", Ch 00000008, MMU Fault"))
        file.write("6,2,3,-;usb 1-1: new device\n" + line.format("01", "", 48, ""))
        file.write(line.format("02", "", 94, ""))
    sampler.stop()
    assert [event.get("xids") for event in log.events] == [
        None,
        [{"gpu": "0000:02:00", "xid": 31, "message": "Ch 00000008, MMU Fault"},
         {"gpu": "0000:02:00", "xid": 94, "message": ""}],
    ]  # fmt: skip
    event_fields.parse_event(json.dumps(log.events[1]).encode())


def test_where_the_kernels_log_cannot_be_read_nothing_is_said(nvml, tmp_path):
    unread = gpus.KernelLog(nvml, [0], tmp_path / "missing")
    assert unread.errors() == []
    unread.close()


def test_without_a_driver_or_pynvml_sampling_goes_on_and_says_why(log, nvml, monkeypatch):
    nvml.broken.add("driver")
    for why in ("NVML Shared Library Not Found", "nvidia-ml-py is missing"):
        sampler = gpu_sampler(log, nvml, [0])
        assert why in sampler.start()["gpus_not_sampled"]
        assert sampler.stop()["energy_j"] is None
        monkeypatch.setitem(sys.modules, "pynvml", None)
    assert len(log.events) == 4 and not any("gpus" in event for event in log.events)


def test_a_run_without_gpus_does_not_touch_nvml(log, nvml):
    nvml.broken.add("driver")
    sampler = Sampler(log)
    assert sampler.start()["gpus_not_sampled"] is None
    totals = sampler.stop()
    assert (totals["energy_j"], totals["energy_source"]) == (None, None)


def test_a_gpu_is_found_by_its_uuid_whole_or_cut_short(log, nvml):
    sampler = gpu_sampler(log, nvml, ["GPU-bbbb2222-0000", "GPU-aaaa", "MIG-cccc3333-0000"])
    assert sampler.start()["gpus_not_sampled"] is None
    sampler.stop()
    gpus = log.events[0]["gpus"]
    assert [gpu["gpu"][:8] for gpu in gpus] == ["GPU-bbbb", "GPU-aaaa", "MIG-cccc"]
    assert [gpu["utilisation_percent"] for gpu in gpus] == [91, 90, 92]


@pytest.mark.parametrize("selector", ["GPU-", "GPU-dddd", 2])
def test_a_gpu_that_is_unknown_or_ambiguous_is_named(log, nvml, selector):
    sampler = gpu_sampler(log, nvml, [selector])
    assert sampler.start()["gpus_not_sampled"].startswith(f"GPU {selector}: ")
    sampler.stop()
    assert log.events[0]["gpus"][0]["power_w"] is None


@pytest.mark.parametrize(
    "gone",
    [
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"),
    ],
)
def test_old_and_new_names_of_nvml_functions_do(log, nvml, gone):
    nvml.broken.update(gone)
    with gpu_sampler(log, nvml, [0]):
        pass
    gpu = log.events[0]["gpus"][0]
    assert gpu["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert gpu["temperature_c"] == 60


def test_every_throttle_reason_has_a_name_and_none_is_an_empty_list():
    assert throttle_reasons(0) == []
    assert throttle_reasons(0x7FF) == list(gpus.REASONS.values())
    assert throttle_reasons(0x801) == ["gpu_idle", "unknown_0x800"]


@pytest.mark.parametrize(
    ("listed", "first", "count", "expected"),
    [
        (None, 2, 2, (2, 3)),
        ("2,1,0", 0, 2, (2, 1)),
        ("2,1,0", 2, 1, (0,)),
        (" 4 , 5 ", 1, 1, (5,)),
        ("GPU-aaaa1111,MIG-cccc", 0, 2, ("GPU-aaaa1111", "MIG-cccc")),
        ("0,2,-1,1", 0, 4, (0, 2)),
        ("", 0, 1, ()),
        ("NoDevFiles", 0, 1, ()),
        ("0", 1, 1, ()),
    ],
)
def test_visible_gpus_are_those_that_cuda_shows(listed, first, count, expected):
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible_gpus(first, count, environ) == expected


@pytest.fixture
def process():
    """A function that starts a process, of this run or another one, and returns its number."""
    started = []

    def start(supervisor):
        variables = {"PATH": os.environ["PATH"]} | ({MARK: supervisor} if supervisor else {})
        started.append(subprocess.Popen(["sleep", "60"], env=variables))
        environ = Path(f"/proc/{started[-1].pid}/environ")
        while supervisor and supervisor.encode() not in environ.read_bytes():
            time.sleep(0.01)
        return started[-1].pid

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_processes_on_a_gpu_that_are_of_no_rank_or_copy_are_counted(
    log, nvml, process, monkeypatch
):
    monkeypatch.setenv(MARK, "boot 10 1 /a log")
    nvml.pids += [process("boot 10 1 /a log"), process("boot 10 1 /another log"), process(None)]
    with gpu_sampler(log, nvml, [0]):
        pass
    assert log.events[-1]["gpus"][0]["other_gpu_processes"] == 2


def test_a_trainer_that_nobody_supervises_knows_itself_alone(log, nvml, process, monkeypatch):
    monkeypatch.delenv(MARK, raising=False)
    nvml.pids.append(process(None))
    with gpu_sampler(log, nvml, [0]):
        pass
    assert log.events[-1]["gpus"][0]["other_gpu_processes"] == 1


@pytest.mark.parametrize("pids", [[], [1]])
def test_where_a_trainer_does_not_see_itself_on_its_gpu_nobody_is_counted(log, nvml, pids):
    """Before it uses the GPU, and in a container with process numbers of its own."""
    nvml.pids = pids
    with gpu_sampler(log, nvml, [0]):
        pass
    assert log.events[-1]["gpus"][0]["other_gpu_processes"] is None
