"""A fake nvidia-smi, which keeps the power limits of GPUs in a file.

It has the options, columns, messages and exit codes of the real one that power.py,
gpus.py and check_node.py use. No GPU is here, so the real one was not run.
"""

import json
import sys

# sh starts it, since the path of a Python may have spaces, which the first line cannot name.
PROGRAM = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
'''
import json, os, sys

place = {place!r}
with open(place) as file:
    state = json.load(file)
arguments = sys.argv[1:]
if state["broken"]:
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    sys.exit(9)
if arguments[0].startswith("--query-gpu="):
    for gpu in state["gpus"]:
        names = arguments[0].partition("=")[2].split(",")
        print(", ".join(gpu[name] if isinstance(gpu[name], str) else "%.2f" % gpu[name]
                        for name in names))
    sys.exit()
if arguments == ["-L"]:
    for gpu in state["gpus"]:
        print("GPU %s: NVIDIA H100 (UUID: %s)" % (gpu["index"], gpu["uuid"]))
    sys.exit()
uuid, watts = arguments[arguments.index("-i") + 1], float(arguments[arguments.index("-pl") + 1])
gpu = next(one for one in state["gpus"] if one["uuid"] == uuid)
if not gpu["supported"]:
    print("Changing power management limit is not supported for GPU: 00000000:01:00.0.")
    print("Treating as warning and moving on." + chr(10) + "All done.")
elif not gpu["allowed"]:
    print("Failed to set power management limit for GPU 00000000:01:00.0: Insufficient Permissions")
    print("Terminating early due to previous errors.")
    sys.exit(4)
else:
    print("Power limit for GPU 00000000:01:00.0 was set to %.2f W from %.2f W."
          % (watts, gpu["power.limit"]))
    gpu["power.limit"] = watts
    most = gpu["enforced.power.limit"] if gpu["capped"] else watts
    gpu["enforced.power.limit"] = min(watts, most)
    with open(place + ".part", "w") as file:
        json.dump(state, file)
    os.replace(place + ".part", place)
"""


class NvidiaSmi:
    """The program in a folder, with two GPUs of 300 W and limits from 100 to 400 W.

    Attributes:
        uuids: of the GPUs.
    """

    def __init__(self, folder):
        self.folder, self._state = folder, folder / "gpus.json"
        self.uuids = ("GPU-aaaa1111-0000", "GPU-bbbb2222-0000")
        folder.mkdir(exist_ok=True)
        gpu = {
            "driver_version": "550.54.15",
            "persistence_mode": "Enabled", "power.limit": 300.0, "enforced.power.limit": 300.0,
            "power.min_limit": 100.0, "power.max_limit": 400.0,
            "supported": True, "allowed": True, "capped": False,
        }  # fmt: skip
        gpus = [{"index": str(i), "uuid": uuid, **gpu} for i, uuid in enumerate(self.uuids)]
        self._write({"broken": False, "gpus": gpus})
        program = folder / "nvidia-smi"
        program.write_text(PROGRAM.format(python=sys.executable, place=str(self._state)))
        program.chmod(0o755)

    @property
    def limits(self):
        return [gpu["power.limit"] for gpu in self._read()["gpus"]]

    def change(self, number, **values):
        state = self._read()
        state["gpus"][number] |= values
        self._write(state)

    def set_limit(self, number, watts):
        self.change(number, **{"power.limit": watts, "enforced.power.limit": watts})

    def set_driver(self, version):
        for number in range(len(self.uuids)):
            self.change(number, driver_version=version)

    def break_down(self):
        self._write(self._read() | {"broken": True})

    def _read(self):
        return json.loads(self._state.read_text())

    def _write(self, state):
        self._state.write_text(json.dumps(state))
