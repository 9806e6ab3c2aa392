"""Facts about a run's machine and software that only its record has, for the report."""

import contextlib
from pathlib import Path
from typing import Any

from dlbench.machine import bound_ranks
from dlbench.machine.hardware import installed_gib
from dlbench.records import run_record
from dlbench.report import sentences


def of_record(folder: Path) -> dict[str, Any]:
    """The facts of the run in a folder, by name; {} of imported runs, which have no record."""
    with contextlib.suppress(run_record.RecordError):
        provenance = run_record.read(folder / "run.json")["provenance"]
        versions = dict(provenance.get("versions") or {})
        site = provenance.get("site") or {}
        return {
            "platform": provenance.get("platform"),
            **_machine_facts(provenance),
            sentences.CUDA: (provenance.get("libraries") or {}).get("cudart"),
            "interconnect": site.get("interconnect"),
            "storage": site.get("storage"),
            "modules": ", ".join(provenance.get("modules") or []),
            "cores and GPUs": bound_ranks.describe(provenance.get("bindings") or ()),
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
