"""energy: the share of the time that readings cover."""

import os

import pytest

from dlbench.machine.energy import Coverage, Rapl, fields
from support.trainers.powercap_trees import Powercap, two_sockets
from support.trainers.sampling_stand_ins import Clock


def test_power_that_was_not_read_for_two_intervals_covers_no_time():
    coverage = Coverage(longest_gap_s=2.0)
    for now_s, known in ((0, True), (1, True), (2, False), (3, True), (6, True), (10, True)):
        coverage.add(now_s, known)
    quality = coverage.quality(counter=False)
    assert quality == {"samples": 5, "sampled_share": 0.3, "resolution_s": 2.5}
    assert coverage.quality(counter=True)["sampled_share"] == 1.0
    once = Coverage(longest_gap_s=2.0)
    once.add(5.0, True)
    nothing = {"samples": 1, "sampled_share": None, "resolution_s": None}
    assert once.quality(counter=False) == nothing


def test_an_energy_that_is_not_known_has_a_reason_and_no_quality():
    told = fields("node_", None, "meter", "it ended", samples=5, sampled_share=1.0)
    assert told.pop("node_energy_unknown") == "it ended"
    assert set(told.values()) == {None}
    assert fields("", 2.0, "counter", "ignored")["energy_unknown"] is None


def rapl(tree, clock=None, interval_s=1.0):
    return Rapl(tree.root, clock or Clock(), interval_s)


def test_all_packages_and_their_memory_are_added_up_and_no_part_is_counted_twice(tmp_path):
    tree, clock = two_sockets(tmp_path / "powercap"), Clock()
    read = rapl(tree, clock)
    assert read.domains == ["package-0", "package-0/dram", "package-1", "package-1/dram"]
    assert read.sample() == {"package_energy_j": 0, "dram_energy_j": 0}
    clock.now_s = 2.0
    energies_j = {":0": 101, ":0:0": 90, ":0:1": 12, ":1": 51, ":2": 999, "-mmio:0": 101}
    for zone, energy_j in energies_j.items():
        tree.show(f"intel-rapl{zone}", energy_j * 1_000_000)
    assert read.sample() == {"package_energy_j": 150, "dram_energy_j": 10}
    assert read.fields() == {
        "host_energy_j": 160,
        "host_energy_source": "RAPL: package-0, package-0/dram, package-1, package-1/dram",
        "host_energy_samples": 2,
        "host_energy_sampled_share": 1.0,
        "host_energy_resolution_s": 2.0,
        "host_energy_unknown": None,
    }
    read.close()


def test_a_counter_that_begins_again_at_its_range_loses_nothing(tmp_path):
    tree, clock = Powercap(tmp_path / "powercap"), Clock()
    tree.domain("intel-rapl:0", "package-0", 65_500_000_000, range_uj=65_532_610_987)
    read = rapl(tree, clock)
    read.sample()
    for second, energy_uj in ((30, 7_389_013), (60, 20_000_000_000), (90, 40_000_000_000)):
        clock.now_s = second
        tree.show("intel-rapl:0", energy_uj)
        read.sample()
    total_j = 40_000 + 32.610987
    assert read.fields()["host_energy_j"] == pytest.approx(total_j, abs=1e-3)
    read.close()


@pytest.mark.parametrize("energy_uj", [0, 64_000_000_000])
def test_a_counter_that_changes_by_more_than_is_possible_was_reset(tmp_path, energy_uj):
    tree, clock = Powercap(tmp_path / "powercap"), Clock()
    tree.domain("intel-rapl:0", "package-0", 50_000_000_000, range_uj=262_143_328_850)
    read = rapl(tree, clock)
    read.sample()
    clock.now_s = 1.0
    tree.show("intel-rapl:0", energy_uj)
    assert read.sample() == {"package_energy_j": None, "dram_energy_j": None}
    assert read.fields()["host_energy_unknown"].startswith("package-0 was reset: ")


def test_a_processor_without_counted_memory_has_the_energy_of_its_packages(tmp_path):
    read = rapl(Powercap(tmp_path / "powercap").domain("intel-rapl:0", "package-0-die-1"))
    assert read.sample() == {"package_energy_j": 0, "dram_energy_j": None}
    assert read.fields()["host_energy_j"] == 0
    read.close()


def test_readings_too_far_apart_for_the_counter_are_a_reason(tmp_path):
    clock = Clock()
    tree = Powercap(tmp_path / "powercap")
    read = rapl(tree.domain("intel-rapl:0", "package-0", range_uj=60_000_000_000), clock)
    read.sample()
    clock.now_s = 60.0
    read.sample()
    told = read.fields()
    assert told["host_energy_j"] is told["host_energy_samples"] is None
    assert told["host_energy_unknown"] == (
        "package-0 was not read for 60 s, in which it may have wrapped around more than once: "
        "lower sample_every_s"
    )


def test_without_a_tree_and_behind_what_hides_it_there_is_a_reason_and_no_error(tmp_path):
    empty = Powercap(tmp_path / "powercap")
    (empty.root / "intel-rapl:0").symlink_to(tmp_path / "hidden")  # as in Docker
    for root in (tmp_path / "none", empty.root):
        read = Rapl(root, Clock(), 1.0)
        assert read.domains == []
        assert read.sample() == {"package_energy_j": None, "dram_energy_j": None}
        assert read.fields()["host_energy_unknown"].startswith(f"{root} has no packages of RAPL")


def test_a_counter_that_only_root_may_read_is_a_reason(tmp_path, monkeypatch):
    tree = two_sockets(tmp_path / "powercap")
    locked = tree.root / "intel-rapl:0:1" / "energy_uj"
    locked.chmod(0)
    if os.access(locked, os.R_OK):  # root reads everything: let the kernel's answer be the same
        opened = os.open

        def refuse(path, *arguments, **named):
            if path == locked:
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *arguments, **named)

        monkeypatch.setattr(os, "open", refuse)
    read = rapl(tree)
    read.sample()
    told = read.fields()
    assert told["host_energy_j"] is None
    assert told["host_energy_unknown"] == (
        f"{locked} may not be read: Linux allows it to root only, unless the administrator "
        "changes the file's mode"
    )
    assert read.domains == []


@pytest.mark.parametrize("content", ["", "many\n"])
def test_a_damaged_counter_is_a_reason_also_in_the_middle_of_a_run(tmp_path, content):
    tree = Powercap(tmp_path / "powercap").domain("intel-rapl:0", "package-0")
    read = rapl(tree)
    read.sample()
    (tree.root / "intel-rapl:0/energy_uj").write_text(content)
    read.sample()
    tree.show("intel-rapl:0", 5)
    assert read.sample() == {"package_energy_j": None, "dram_energy_j": None}
    assert read.fields()["host_energy_unknown"].startswith("package-0 could not be read: ")
