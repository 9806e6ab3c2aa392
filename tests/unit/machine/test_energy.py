"""energy: the counters of a node, and the share of the time that readings cover."""

import os
from pathlib import Path

import pytest

from dlbench.machine.energy import Counters, Coverage, disagreement, fields
from dlbench.machine.energy_readers import cray
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
    return counters(clock or Clock(), interval_s, rapl=tree.root)


def counters(clock, interval_s=1.0, **roots):
    nowhere = dict.fromkeys(("cray", "rapl"), Path("/no/counters"))
    return Counters(clock, interval_s, nowhere | roots)


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
    assert read.fields("host_") == {
        "host_energy_j": 160,
        "host_energy_source": "processors and memory: RAPL package-0, package-0/dram, "
        "package-1, package-1/dram",
        "host_energy_samples": 2,
        "host_energy_sampled_share": 1.0,
        "host_energy_resolution_s": 2.0,
        "host_energy_unknown": None,
        "host_energy_note": None,
    }


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
    assert read.fields("host_")["host_energy_j"] == pytest.approx(total_j, abs=1e-3)


@pytest.mark.parametrize("energy_uj", [0, 64_000_000_000])
def test_a_counter_that_changes_by_more_than_is_possible_was_reset(tmp_path, energy_uj):
    tree, clock = Powercap(tmp_path / "powercap"), Clock()
    tree.domain("intel-rapl:0", "package-0", 50_000_000_000, range_uj=262_143_328_850)
    read = rapl(tree, clock)
    read.sample()
    clock.now_s = 1.0
    tree.show("intel-rapl:0", energy_uj)
    assert read.sample() == {"package_energy_j": None, "dram_energy_j": None}
    assert read.fields("host_")["host_energy_unknown"].startswith("package-0 was reset: ")


def test_a_processor_without_counted_memory_has_the_energy_of_its_packages(tmp_path):
    read = rapl(Powercap(tmp_path / "powercap").domain("intel-rapl:0", "package-0-die-1"))
    assert read.sample() == {"package_energy_j": 0, "dram_energy_j": None}
    assert read.fields("host_")["host_energy_j"] == 0


def test_readings_too_far_apart_for_the_counter_are_a_reason(tmp_path):
    clock = Clock()
    tree = Powercap(tmp_path / "powercap")
    read = rapl(tree.domain("intel-rapl:0", "package-0", range_uj=60_000_000_000), clock)
    read.sample()
    clock.now_s = 60.0
    read.sample()
    told = read.fields("host_")
    assert told["host_energy_j"] is told["host_energy_samples"] is None
    assert told["host_energy_unknown"] == (
        "package-0 was not read for 60 s, in which it may have wrapped around more than once: "
        "lower sample_every_s"
    )


def test_without_a_tree_and_behind_what_hides_it_there_is_a_reason_and_no_error(tmp_path):
    empty = Powercap(tmp_path / "powercap")
    (empty.root / "intel-rapl:0").symlink_to(tmp_path / "hidden")  # as in Docker
    for root in (tmp_path / "none", empty.root):
        read = counters(Clock(), rapl=root)
        assert read.domains == []
        assert read.sample() == {"package_energy_j": None, "dram_energy_j": None}
        assert read.fields("host_")["host_energy_unknown"].startswith(
            f"{root} has no packages of RAPL"
        )


def test_a_counter_that_only_root_may_read_is_a_reason(tmp_path, monkeypatch):
    tree = two_sockets(tmp_path / "powercap")
    locked = tree.root / "intel-rapl:0:1" / "energy_uj"
    locked.chmod(0)
    if os.access(locked, os.R_OK):  # root reads everything: let the kernel's answer be the same
        read_bytes = Path.read_bytes

        def refuse(path):
            if path == locked:
                raise PermissionError(13, "Permission denied", str(path))
            return read_bytes(path)

        monkeypatch.setattr(Path, "read_bytes", refuse)
    read = rapl(tree)
    read.sample()
    told = read.fields("host_")
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
    assert read.fields("host_")["host_energy_unknown"].startswith("package-0 could not be read: ")


class Blade:
    """A folder as /sys/cray/pm_counters of a node; `show` sets counters, in J, and powers, in W."""

    def __init__(self, root):
        self.root, self.now_us = root, 1_449_094_453_000_000
        root.mkdir()
        (root / "generation").write_text("3\n")
        self.show(energy=5_000, cpu_energy=900, memory_energy=80, accel0_energy=700, power=400)
        self.show(accel1_energy=600, accel_energy=1_300, cpu_power=90, memory_power=20)

    def show(self, **values):
        self.now_us += 100_000
        for name, value in values.items():
            unit = "J" if name.endswith("energy") else "W"
            (self.root / name).write_text(f"{value} {unit} {self.now_us} us\n")


def test_a_cray_counts_its_node_its_processors_and_its_accelerators(tmp_path):
    blade, clock = Blade(tmp_path / "pm_counters"), Clock()
    rapl_too = two_sockets(tmp_path / "powercap")  # the first reader by name counts, and one only
    read = counters(clock, cray=blade.root, rapl=rapl_too.root)
    assert set(read.domains) == {"accel0_energy", "accel1_energy", "generation", *cray.KINDS}
    read.sample()
    clock.now_s = 10.0
    blade.show(energy=9_000, cpu_energy=1_900, memory_energy=280, accel0_energy=1_700)
    blade.show(accel1_energy=1_100, power=400, cpu_power=80, memory_power=20)
    assert read.sample() == {"package_energy_j": 1000, "dram_energy_j": 200}
    told = {prefix: read.fields(prefix) for prefix in ("", "host_", "node_")}
    assert told["host_"]["host_energy_j"] == 1200
    assert told["node_"]["node_energy_source"] == "node: Cray pm_counters energy"
    assert (told["node_"]["node_energy_j"], told["node_"]["node_energy_note"]) == (4000, None)
    gpus = "all GPUs of the node: Cray pm_counters accel0_energy, accel1_energy"
    assert (told[""]["energy_j"], told[""]["energy_source"]) == (1500, gpus)
    # 850 W and 20 W over 10 s are 1050 J.
    note = told["host_"]["host_energy_note"]
    assert note == "power over time is 12 % less than its counter"
    (blade.root / "generation").write_text("4\n")
    blade.show(energy=9_000, cpu_energy=1_900, memory_energy=280)
    read.sample()
    assert read.fields("node_")["node_energy_note"] == "the power cap was changed"


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ({"energy": 4_000}, "energy was reset: -1000 J more after 3.0 s"),
        ({"energy": "?"}, "energy could not be read: "),
        ({}, "energy was not renewed for 3 s"),
    ],
)
def test_a_counter_of_a_cray_that_stands_still_or_is_damaged_is_a_reason(tmp_path, shown, reason):
    blade, clock = Blade(tmp_path / "pm_counters"), Clock()
    read = counters(clock, cray=blade.root)
    read.sample()
    clock.now_s = 3.0
    blade.show(cpu_energy=901, memory_energy=81, **shown)
    read.sample()
    told = read.fields("node_")
    assert told["node_energy_j"] is None and told["node_energy_unknown"].startswith(reason)
    assert read.fields("host_")["host_energy_j"] == 2


def test_two_readings_that_differ_by_more_than_a_tenth_say_so():
    assert disagreement(100.0, 109.0) == disagreement(0.0, 5.0) == disagreement(9.0, None) == ""
    assert disagreement(100.0, 111.0) == "power over time is 11 % more than its counter"
