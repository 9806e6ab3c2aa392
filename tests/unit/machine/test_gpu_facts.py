"""What a run says of its GPUs.

NVML itself was not run: no GPU is here, so a stand-in takes its place.
"""

import sys
from importlib import metadata

import pytest

from dlbench.machine import facts, gpus
from support.machines.nvidia_smi import NvidiaSmi
from support.trainers.sampling_stand_ins import NVML, Clock


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
