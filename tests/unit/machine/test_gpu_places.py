"""gpu_places: the GPUs that a process sees; whole nodes are in test_binding.py."""

import sys

import pytest

from dlbench.machine import gpus
from support.machines import topologies


@pytest.fixture
def nvml(monkeypatch):
    stand_in = topologies.NVML([("GPU-aaaa1111-0000", "00000000:1B:00.0")])
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_a_number_that_the_node_lacks_ends_the_list_and_an_empty_one_hides_all_as_for_cuda(
    nvml, tree
):
    seen = gpus.visible_places(tree({}), {"CUDA_VISIBLE_DEVICES": "0,3,0"})
    assert [gpu.uuid for gpu in seen] == ["GPU-aaaa1111-0000"]
    assert gpus.visible_places(tree({}), {"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_where_sys_is_not_there_the_place_is_not_known(nvml, tree):
    (gpu,) = gpus.visible_places(tree({}), {})
    assert (gpu.pci, gpu.numa_node, gpu.cpus) == ("0000:1b:00.0", None, ())


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetUUID"])
def test_a_driver_that_does_not_start_or_a_gpu_that_is_lost_says_nothing(
    nvml, tree, monkeypatch, function
):
    def fail(*_):
        raise nvml.NVMLError("Driver Not Loaded, or GPU is lost")

    monkeypatch.setattr(nvml, function, fail)
    assert gpus.visible_places(tree({}), {}) is None
