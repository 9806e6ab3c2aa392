"""What the choice of a process's GPUs and cores takes at its start, on nodes with eight GPUs.

    uv run python -m tests.performance.machine.binding [--rounds 50]

Prints the milliseconds in which a process finds the GPUs that it may use, reads which cores the
node has and what is near what, and divides the cores among eight processes (target: under 50).
The nodes are those of the tests, as files; NVML's answers come from a stand-in, and what processes
wait for one another to exchange them is not in it.
"""

import sys
import tempfile
import time
from pathlib import Path

from dlbench.machine import binding, core_division, gpu_places
from dlbench.machine.hardware import Files
from support.machines import topologies

from .. import bench

PROCESSES = 8
NODES = {"8 H100, 224 CPUs": topologies.h100_x8, "8 MI300X, 384 CPUs": topologies.mi300x_x8}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    for name, node in NODES.items():
        files, nvml = node()
        sys.modules["pynvml"] = nvml
        with tempfile.TemporaryDirectory() as folder:
            topologies.write(Path(folder), files)
            taken_ms = [chosen_in_ms(Files(folder)) for _ in range(args.rounds)]
        figures.add(f"division of cores, {name}", taken_ms, "ms", at_most=50)


def chosen_in_ms(node):
    """Milliseconds of the choice of the last of eight processes, each of which has one GPU."""
    cpus = topologies.expanded(node.text("sys/devices/system/cpu/online"))
    request = binding.Request(binding.AUTO, PROCESSES - 1, PROCESSES, gpus_each=1)
    began = time.perf_counter()
    visible = gpu_places.visible(node, {})
    topology = core_division.read(node)
    chosen = binding.decide(request, [cpus] * PROCESSES, [visible] * PROCESSES, topology, None)
    taken_ms = 1000 * (time.perf_counter() - began)
    assert len(chosen.cpus) == len(cpus) // PROCESSES and len(chosen.gpus) == 1
    return taken_ms


if __name__ == "__main__":
    main()
