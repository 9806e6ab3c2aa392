"""Fakes for the tests of sampling: a log, a clock, and NVML with GPUs.

`NVML` has the functions in use, with the names, arguments, units and errors of nvidia-ml-py 13.
"""

import os
import time
from types import SimpleNamespace


class Log:
    def __init__(self):
        self.events = []

    def now(self):
        return time.perf_counter()

    def write(self, event, **values):
        self.events.append({"event": event, **values})


class Clock:
    """Seconds that pass only by `advance`."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class NVMLError(Exception):
    pass


# What NVML answers for every GPU.
ANSWERS = {
    "nvmlDeviceGetCount": 2, "nvmlSystemGetCudaDriverVersion_v2": 12040,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": 0, "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetVbiosVersion": "96.00.74.00.01", "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16, "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000, "nvmlDeviceGetEccMode": [1, 0],
    "nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetComputeMode": 3,
    "nvmlDeviceGetTopologyCommonAncestor": 50,
}  # fmt: skip


class NVML:
    """pynvml for two GPUs of 100 W and 200 W; `broken` names functions or GPUs that fail."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    DRIVER, MAX_LIMIT_W, NVLINKED = "550.54.15", 700, True
    UUIDS = ("GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "MIG-cccc3333-0000")

    def __init__(self, clock, broken=()):
        self.clock = clock
        self.broken = set(broken)
        self.watts = [100, 200, 0]
        self.mask = 0x24
        self.pids = [os.getpid()]
        self.users = 0
        self.found = []

    def __getattribute__(self, name):
        if name in object.__getattribute__(self, "__dict__").get("broken", ()):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        if name not in ANSWERS or name in self.broken:
            raise AttributeError(name)
        return lambda *_: ANSWERS[name]

    def fail_where_broken(self, gpu):
        if gpu in self.broken:
            raise NVMLError("GPU is lost")

    def nvmlInit(self):
        if "driver" in self.broken:
            raise NVMLError("NVML Shared Library Not Found")
        self.users += 1

    def nvmlShutdown(self):
        self.users -= 1

    def nvmlDeviceGetHandleByIndex(self, index):
        self.fail_where_broken(index)
        if index not in (0, 1):
            raise NVMLError("Invalid Argument")
        self.found.append(index)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.UUIDS:
            raise NVMLError("Not Found")
        return self.UUIDS.index(uuid)

    def nvmlDeviceGetUUID(self, handle):
        return self.UUIDS[handle]

    def nvmlDeviceGetUtilizationRates(self, handle):
        self.fail_where_broken(handle)
        return SimpleNamespace(gpu=90 + handle, memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle):
        self.fail_where_broken(handle)
        return SimpleNamespace(used=(handle + 1) * 2**30, total=80 * 2**30)

    def nvmlDeviceGetPowerUsage(self, handle):
        self.fail_where_broken(handle)
        return self.watts[handle] * 1000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.fail_where_broken(handle)
        return 5_000_000 + int(self.clock() * self.watts[handle] * 1000)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        self.fail_where_broken(handle)
        return 60 + sensor

    nvmlDeviceGetTemperatureV = nvmlDeviceGetTemperature

    def nvmlDeviceGetClockInfo(self, handle, kind):
        self.fail_where_broken(handle)
        return {self.NVML_CLOCK_SM: 1410, self.NVML_CLOCK_MEM: 1593}[kind]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        self.fail_where_broken(handle)
        return [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in self.pids]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        self.fail_where_broken(handle)
        return self.mask

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons

    # What a GPU is and how it is set; both are alike.

    def nvmlSystemGetDriverVersion(self):
        return self.DRIVER

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 MIG 1g.10gb" if handle == 2 else b"NVIDIA H100"

    def nvmlDeviceIsMigDeviceHandle(self, handle):
        return handle == 2

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle):
        return 1 + handle

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}[kind]

    nvmlDeviceGetApplicationsClock = nvmlDeviceGetMaxClockInfo

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return self.MAX_LIMIT_W * 1000

    def nvmlDeviceGetMigMode(self, handle):
        if handle == 1:
            raise NVMLError("Not Supported")
        return [0, 0]

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=f"00000000:{handle + 1:02X}:00.0".encode())

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if not self.NVLINKED or link > 11:
            raise NVMLError("Not Supported")
        return 1

    def nvmlDeviceGetP2PStatus(self, one, other, capability):
        return 0 if self.NVLINKED else 5
