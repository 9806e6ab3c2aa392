"""Files of /proc and /sys of a fictitious node, in the kernel's format."""

TICKS = 100  # a second


class Kernel:
    """A node with four idle CPUs, to which tests add processes; times in seconds."""

    def __init__(self, root, cpus=4):
        self.root = root
        self.busy_s, self.steal_s, self.elapsed_s = [0.0] * cpus, [0.0] * cpus, 0.0
        self.write("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n")
        self.write_totals()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def write_totals(self):
        lines = ["cpu 1 2 3 4 5 6 7 8 0 0"]
        for number, (busy, steal) in enumerate(zip(self.busy_s, self.steal_s, strict=True)):
            idle = round((self.elapsed_s - busy - steal) * TICKS)
            times = (round(busy * TICKS), 0, 0, idle, 0, 0, 0, round(steal * TICKS), 0, 0)
            lines.append(f"cpu{number} {' '.join(map(str, times))}")
        self.write("proc/stat", "\n".join([*lines, "intr 1 2 3"]) + "\n")
        self.write("proc/loadavg", "0.50 0.10 0.05 1/99 7\n")

    def process(self, pid, parent, own_s=0.0, children_s=0.0, name="a (b) c", environ="", pages=0):
        place = f"proc/{pid}"
        times = [round(own_s * TICKS), 0, round(children_s * TICKS), 0]
        after = ["S", parent, *[0] * 9, *times, 20, 0, 1, 0, 1000 + pid, 0, pages]
        self.write(f"{place}/stat", f"{pid} ({name}) {' '.join(map(str, after))}\n")
        self.write(f"{place}/cmdline", "")
        self.write(f"{place}/environ", environ)
        io = {"rchar": 9, "read_bytes": 0, "write_bytes": 0, "cancelled_write_bytes": 0}
        self.write(f"{place}/io", "".join(f"{key}: {value}\n" for key, value in io.items()))
        self.write_totals()

    def end(self, pid):
        for path in (self.root / f"proc/{pid}").iterdir():
            path.unlink()
        (self.root / f"proc/{pid}").rmdir()
