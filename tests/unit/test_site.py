"""site: which runs a machine cannot do, and why."""

import dataclasses

import pytest

from dlbench import site
from dlbench.runs import Run
from dlbench.site import Devices

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
TWO_CORES = Devices("cpu", None, cores=2)


def reason(devices=TWO_CORES, **changes):
    return site.skip_reason(dataclasses.replace(RUN, **changes), devices)


def test_one_device_is_no_problem():
    assert reason() is None


def test_two_cpu_devices_need_two_cores():
    mirrored = {"strategy": "mirrored", "devices_per_node": 2}
    assert reason(**mirrored) is None
    assert reason(Devices("cpu", None, cores=1), **mirrored) == (
        "needs 2 cores (2 CPU devices of 1); this machine offers 1"
    )
    assert "needs 4 cores" in reason(threads_per_device=2, **mirrored)


def test_what_the_site_says_of_its_devices_counts():
    message = reason(Devices("gpu", 4, cores=2), strategy="mirrored", devices_per_node=8)
    assert message == "needs 8 gpu devices per node; this site has 4"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices_per_node": 2}, "single drives one device; 2 need mirrored or horovod"),
        ({"strategy": "mirrored", "nodes": 2}, "mirrored stays on one node"),
        ({"strategy": "horovod", "devices_per_node": 2}, "needs a launcher, found none"),
    ],
)
def test_a_strategy_says_what_it_cannot_do(changes, message):
    assert message in reason(**changes)


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    site._installed.cache_clear()
    message = reason(strategy="horovod", launcher="horovodrun")
    site._installed.cache_clear()
    assert message.startswith("horovod is not installed in envs/train")
    assert message.endswith("uv sync --project envs/train --frozen --extra horovod")


def test_given_devices_win_over_what_the_machine_has():
    given = {"name": "here", "device": "gpu", "devices_per_node": 8}
    found = site.devices(given)
    assert (found.kind, found.per_node) == ("gpu", 8)
    automatic = site.devices({"name": "here", "device": "cpu", "devices_per_node": "auto"})
    assert (automatic.kind, automatic.per_node) == ("cpu", None)
    assert automatic.cores >= 1
