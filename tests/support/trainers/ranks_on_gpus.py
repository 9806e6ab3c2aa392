"""train.py of a run of PyTorch whose devices are GPUs that are not here: their work is the CPU's.

- NVML says that there are four GPUs, and a tree of /sys that the last are near the first cores.
- Visibility, the choice of GPUs, the division of cores, workers and threads are the trainer's own.
- DLBENCH_TEST_CORES=N: a node of N cores, more than this machine may have. Nothing is bound then;
  what is asked of the kernel is remembered as if it were.
"""

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "workflow_scripts")]

import torch.utils.data  # noqa: E402

from dlbench.machine import binding  # noqa: E402
from dlbench.machine.hardware import Files  # noqa: E402
from dlbench.trainer import train  # noqa: E402
from dlbench.trainer.pytorch import strategies  # noqa: E402
from support.machines import topologies  # noqa: E402

GPUS, CORES = 4, "DLBENCH_TEST_CORES"


def main() -> None:
    if CORES in os.environ:
        mask = {0: set(range(int(os.environ[CORES])))}
        os.sched_getaffinity = lambda pid: set(mask[0])
        os.sched_setaffinity = lambda pid, cpus: mask.update({0: set(cpus)})
    allowed = sorted(os.sched_getaffinity(0))
    half = len(allowed) // 2
    sides = [",".join(map(str, side)) for side in (allowed[half:], allowed[:half])]
    # The last GPUs are near the first cores.
    near = [sides[0]] * (GPUS // 2) + [sides[1]] * (GPUS - GPUS // 2)
    files = {"sys/devices/system/cpu/online": ",".join(map(str, allowed))}
    for node, text in enumerate(reversed(sides)):
        files[f"sys/devices/system/node/node{node}/cpulist"] = text
    boards = []
    for number, cpus in enumerate(near):
        files |= topologies.gpu(f"0000:0{number}:00.0", int(cpus == sides[0]), cpus)
        boards.append((f"GPU-fa{number}-0000", f"00000000:0{number}:00.0"))
    root = Path(tempfile.mkdtemp())
    topologies.write(root, files)
    sys.modules["pynvml"] = topologies.NVML(boards)
    binding.Files = lambda _: Files(root)
    strategies.Base._configure = on_cpu
    torch.utils.data.DataLoader = Loader
    train.main(__doc__)


def on_cpu(strategy, device, threads_per_device):
    """As the GPU's, but for the device."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    (number,) = strategy.select_gpus(range(GPUS if listed is None else len(listed.split(","))))
    strategy.on_gpus, strategy.gpu_count = False, 0
    strategy.device = torch.device("cpu")
    torch.set_num_threads(1)
    strategy._connect()
    return [f"gpu:{number}"]


class Loader(torch.utils.data.DataLoader):
    """PyTorch's loader, which prints how many workers it starts."""

    def __init__(self, *arguments, **how):
        print(f"workers: {how['num_workers']}", file=sys.stderr, flush=True)
        super().__init__(*arguments, **how)


if __name__ == "__main__":
    main()
