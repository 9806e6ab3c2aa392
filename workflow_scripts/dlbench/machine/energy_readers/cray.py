"""pm_counters: what the controller of an HPE Cray blade counts of a node, readable by all users.

- A file is a number, its unit and a date, `5443211 J 1449094453123456 us`, renewed ten times a
  second. Beside each counter is the power of the same; `generation` counts changes of the cap.
- `energy` is the node with its accelerators, behind the rectifiers of the cabinet; cpu_energy,
  memory_energy and accel0_energy, accel1_energy, ... are parts of it. An accelerator is a module:
  of MI250X two GPUs. They are counted whether a run uses them or not, so NVML precedes.

Source: HPE, Cray System Management, "User Access to Compute Node Power Data"
(github.com/Cray-HPE/docs-csm). Not run on a Cray: tested with a folder of such files.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dlbench.machine.energy import ACCELERATORS, CAPS, MEMORY, NODE, PACKAGES, Counter

ROOT = Path("/sys/cray/pm_counters")
SOURCE = "Cray pm_counters"
MISSING = ""
KINDS = {"energy": NODE, "cpu_energy": PACKAGES, "memory_energy": MEMORY, "generation": CAPS}
ACCELERATOR = re.compile(r"accel\d+_energy")  # accel_energy is their sum


def counters(root: Path) -> Iterator[Counter]:
    """Yield the counters of the node, its processors, its memory and its accelerators."""
    for path in sorted(root.glob("*")):
        kind = ACCELERATORS if ACCELERATOR.fullmatch(path.name) else KINDS.get(path.name)
        power = path.with_name(path.name.replace("energy", "power"))
        if kind:
            has_power = power != path and power.exists()
            yield Counter(path.name, kind, path, 1.0, power=power if has_power else None)
