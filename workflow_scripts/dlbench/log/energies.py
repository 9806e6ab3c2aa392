"""The energies of a run, from the last events of its processes and of its power meter.

There are three, each with its source and quality (dlbench/machine/energy.py): `energy_j` of the
GPUs, `host_energy_j` of the nodes' processors and memory, `node_energy_j` of the whole node, by its
meter, else by its counters. One process of a node has what counters of the node say.

An energy from few readings, from readings of a part of the time, or one that another reading
contradicts, is flagged, but it is a result.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MIN_SAMPLES = 60  # a minute at one a second; start-up and idle time distort shorter ones
NODES_GPUS = "all GPUs of the node"  # as machine/energy.py says in a source
SUBJECTS = {"": "GPUs", "host_": "processors", "node_": "node"}
Fields = Mapping[str, Any]


def summary(ends: Sequence[Fields], meter: Fields) -> dict[str, Any]:
    """The energies of a run for the summary of its record, in joules, with `energy_remark`.

    Over several processes: the sum, the fewest samples, the smallest share, the longest resolution;
    None if it is unknown for one of them.

    Args:
        ends: the run_end of each process; {} if it wrote none.
        meter: the event `power_meter`; {} if there is none.
    """
    on_nodes = [end for end in ends if "host_energy_j" in end or "host_energy_unknown" in end]
    counted = any((end.get("energy_source") or "").startswith(NODES_GPUS) for end in on_nodes)
    by_meter = meter.get("node_energy_j") is not None
    by_meter = by_meter or not any("node_energy_j" in end for end in on_nodes)
    parts = {
        "": on_nodes if counted else ends,
        "host_": on_nodes,
        "node_": [meter] if by_meter and meter else on_nodes,
    }
    energies: dict[str, Any] = {}
    notes = []
    for prefix, readings in parts.items():
        name = f"{prefix}energy"
        energies |= _combined(name, readings)
        notes += [f"{SUBJECTS[prefix]}: {note}" for note in _different(readings, f"{name}_note")]
    remarks = [remark(energies), *notes]
    if by_meter and energies["node_energy_j"] is not None and meter.get("trouble"):
        remarks.append(f"meter: {meter['trouble']}")
    return energies | {"energy_remark": "; ".join(filter(None, remarks)) or None}


def power_limits(event: Fields) -> dict[str, Any]:
    """The power limits of GPUs that a run set, by its event `power_limit`; {} if it set none."""
    if not event:
        return {}
    return {
        "power_limit_found_w": min(_known(event["gpus"], "found_w"), default=None),
        "power_limit_enforced_w": min(_known(event["gpus"], "enforced_w"), default=None),
    }


def remark(values: Fields) -> str | None:
    """A remark about the quality of a run's energies; None if all are good.

    >>> remark({"energy_j": 9.0, "energy_samples": 12, "energy_sampled_share": 0.5})
    'GPUs: 12 readings, fewer than 60, for 50.0 % of the time'
    """
    remarks = []
    for prefix, subject in SUBJECTS.items():
        name = f"{prefix}energy"
        if values.get(f"{name}_j") is None:
            continue
        samples, share = values.get(f"{name}_samples"), values.get(f"{name}_sampled_share")
        flaws = []
        if samples is not None and samples < MIN_SAMPLES:
            flaws.append(f"{samples} readings, fewer than {MIN_SAMPLES}")
        if share is not None and share < 1:
            flaws.append(
                f"{'' if flaws else 'readings '}for {math.floor(1000 * share) / 10} % of the time"
            )
        remarks += [f"{subject}: {', '.join(flaws)}"] if flaws else []
    return "; ".join(remarks) or None


def _combined(name, readings):
    joules = [values.get(f"{name}_j") for values in readings]
    if not joules or None in joules:
        reasons = _different(readings, f"{name}_unknown")
        return {f"{name}_j": None, f"{name}_unknown": "; ".join(reasons) or None}
    return {
        f"{name}_j": math.fsum(joules),
        f"{name}_source": "; ".join(_different(readings, f"{name}_source")) or None,
        f"{name}_samples": min(_known(readings, f"{name}_samples"), default=None),
        f"{name}_sampled_share": min(_known(readings, f"{name}_sampled_share"), default=None),
        f"{name}_resolution_s": max(_known(readings, f"{name}_resolution_s"), default=None),
    }


def _known(readings: Iterable[Fields], name: str) -> list[Any]:
    return [values[name] for values in readings if values.get(name) is not None]


def _different(readings, name):
    return list(dict.fromkeys(_known(readings, name)))
