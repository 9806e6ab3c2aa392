"""Facts about a run's machine and software that only its record has, for the report."""

import contextlib
from pathlib import Path
from typing import Any

from dlbench.machine import binding
from dlbench.machine.hardware import installed_gib
from dlbench.records import run_record
from dlbench.trainer import engine

CUDA = "CUDA runtime"  # its library cudart, as a fact of a run
# The packages of frameworks, each framework's first one before what some of them share.
_PACKAGES = sorted({pair for one in engine.names() for pair in enumerate(engine.packages(one))})
# Facts of machine and software, in their order; further ones follow.
FACTS = ("site", "kind of device", "device", "processor", "memory", "GPU driver", CUDA, "host",
         "operating system", "kernel", "platform", "interconnect", "network", "storage",
         "framework", "python version", *(f"{name} version" for _, name in _PACKAGES),
         "numpy version", "environment", "runtime", "image", "modules", "cores and GPUs", "data",
         "timing source", "source", "dlbench at commit")  # fmt: skip


def of_record(folder: Path) -> dict[str, Any]:
    """The facts of the run in a folder, by name; {} of imported runs, which have no record."""
    with contextlib.suppress(run_record.RecordError):
        provenance = run_record.read(folder / "run.json")["provenance"]
        versions = dict(provenance.get("versions") or {})
        site = provenance.get("site") or {}
        return {
            "platform": provenance.get("platform"),
            **_machine_facts(provenance),
            CUDA: (provenance.get("libraries") or {}).get("cudart"),
            "interconnect": site.get("interconnect"),
            "storage": site.get("storage"),
            "modules": ", ".join(provenance.get("modules") or []),
            "cores and GPUs": binding.describe_ranks(provenance.get("bindings") or ()),
            **{f"{name} version": version for name, version in versions.items()},
        }
    return {}


def _machine_facts(provenance):
    """Hardware of the first node; {} of records of earlier versions."""
    hardware = next(iter((provenance.get("hardware") or {}).values()), None)
    if not hardware:
        return {}
    software = next(iter(provenance["software"].values()))
    cpu, gpus = hardware["cpu"], hardware["gpus"]
    counts = [f"{cpu[name]} {name}" for name in ("sockets", "cores", "threads") if cpu[name]]
    governors = [f"governor {name}" for name in cpu["governors"] or ()]
    ports = [f"{port['rate']} ({port['link_layer']})" for port in hardware["infiniband"]]
    memory = hardware["memory"]["gib"]
    if memory is None and (now_bytes := (provenance.get("present") or {}).get("memory_bytes")):
        memory = installed_gib(now_bytes)
    return {
        "processor": ", ".join([cpu["model"] or "not known", *counts, *governors]),
        "memory": memory and f"{memory} GiB",
        "GPU driver": gpus["driver"] and f"{gpus['driver']}, CUDA {gpus['cuda_driver']}",
        "network": ", ".join(dict.fromkeys(ports)),
        "operating system": software["os"],
        "kernel": software["kernel"],
    }
