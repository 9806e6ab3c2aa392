"""A tree such as Linux shows in /sys/class/powercap, for tests of RAPL."""

RANGE_UJ = 262_143_328_850


class Powercap:
    """Counters of RAPL in a folder; what each shows is set by `show`."""

    def __init__(self, root):
        self.root = root
        root.mkdir()

    def domain(self, zone, name, energy_uj=0, range_uj=RANGE_UJ):
        folder = self.root / zone
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.show(zone, energy_uj)
        return self

    def show(self, zone, energy_uj):
        (self.root / zone / "energy_uj").write_text(f"{energy_uj}\n")


def two_sockets(root):
    """A server with memory that is counted, cores and uncore as parts of the packages, and MMIO."""
    tree = Powercap(root)
    for socket in (0, 1):
        tree.domain(f"intel-rapl:{socket}", f"package-{socket}", 1_000_000)
        tree.domain(f"intel-rapl:{socket}:0", "core", 600_000)
        tree.domain(f"intel-rapl:{socket}:1", "dram", 2_000_000)
    tree.domain("intel-rapl:2", "psys", 9_000_000)
    tree.domain("intel-rapl-mmio:0", "package-0", 1_000_000)
    (root / "intel-rapl").mkdir()
    return tree
