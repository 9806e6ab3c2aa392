"""Which campaigns are of one machine: by facts of it that do not move.

- The key is a digest of the models and numbers of processors, cores and GPUs of a node. Clocks,
  memory sizes, settings of BIOS, microcode and host names are not in it: they move between boots
  of one machine, and are facts whose changes are events (causes.py).
- Nodes of one kind at one site are one machine, as a job may get any of them. A session on unlike
  nodes is of a machine of its own.
- The config may say by hand which keys are one machine: `machines: {NAME: [KEY, KEY]}`. Two keys
  that are probably one machine, and of which it says nothing, are a question.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dlbench import Error
from dlbench.common.files import json_digest

KEY_DIGITS = 12
# Marks, and clocks, which some kernels and virtual machines add to the name of a model.
_SPARE = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@\s*[\d.]+\s*[GM]Hz", re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """What is known of the machine of a key at a site.

    Attributes:
        facts: as `facts` returns them.
        first, last: start of its first and last session.
        hosts: names of its nodes.
    """

    site: str
    key: str
    facts: Mapping[str, Any]
    first: datetime
    last: datetime
    hosts: frozenset[str]


def facts(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of the machine on which some records of a session were made.

    `nodes` has a text for each kind of node; `gpus` one for each kind of GPU, with their number a
    node. Of records of early versions, which have neither, `device_model` alone is known.
    """
    nodes, gpus, models, most = set(), set(), set(), 0
    for record in records:
        provenance = record["provenance"]
        models.add(_plain(provenance.get("device_model") or "unknown"))
        for hardware in (provenance.get("hardware") or {}).values():
            nodes.add(_processors(hardware.get("cpu") or {}))
            kinds = (hardware.get("gpus") or {}).get("kinds") or ()
            gpus |= {_plain(kind.get("name") or "unknown GPU") for kind in kinds}
        present = provenance.get("present") or {}
        links = present.get("gpu_links") or ()  # of each pair of all GPUs of the node
        most = max([most, len(present.get("gpus") or ()), *(b + 1 for _, b, *_ in links)])
    if not nodes:
        return {"device_model": sorted(models)}
    return {"nodes": sorted(nodes), "gpus": sorted(gpus), "gpus_per_node": most if gpus else 0}


def key(machine_facts: Mapping[str, Any]) -> str:
    """The key of the machine that has these facts."""
    return json_digest(dict(machine_facts))[:KEY_DIGITS]


def name(machine_facts: Mapping[str, Any]) -> str:
    """The facts in words, as `2 x AMD EPYC 7763, 128 cores; 8 x NVIDIA A100-SXM4-80GB`."""
    if "device_model" in machine_facts:
        return " and ".join(machine_facts["device_model"])
    text = " and ".join(machine_facts["nodes"])
    if not machine_facts["gpus"]:
        return text
    return f"{text}; {machine_facts['gpus_per_node']} x {' and '.join(machine_facts['gpus'])}"


def named(machines: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """{key: name} of the keys in `machines` of a config.

    Raises:
        Error: a key is of two machines.
    """
    names: dict[str, str] = {}
    for machine, keys in machines.items():
        for one in keys:
            if names.setdefault(one, machine) != machine:
                raise Error(
                    f"machines: the key {one} is given to {names[one]} and to {machine}: "
                    "a key is of one machine; leave it out of one of the two"
                )
    return names


def questions(machines: Sequence[Machine], names: Mapping[str, str]) -> list[str]:
    """One text for each pair of keys that are probably one machine.

    Args:
        names: {key: name}, as the config says; a pair of which it names both is settled.
    """
    texts = []
    for a, b in itertools.combinations(sorted(machines, key=lambda m: (m.first, m.key)), 2):
        if a.site != b.site or (a.key in names and b.key in names):
            continue
        if reason := _reason(a, b):
            texts.append(
                f"Is {a.key} ({name(a.facts)}) the same machine of {a.site} as {b.key} "
                f"({name(b.facts)})? {reason}. Their series are kept apart. If it is, write "
                f"machines: {{NAME: [{a.key}, {b.key}]}} into the config; if it is not, "
                f"machines: {{NAME: [{a.key}], OTHER: [{b.key}]}}"
            )
    return texts


def _reason(a, b):
    """Why two keys are probably one machine, or ""."""
    if common := sorted(a.hosts & b.hosts):
        return f"Both have the host {common[0]}"
    if "device_model" in a.facts or "device_model" in b.facts:
        old, new = (a, b) if "device_model" in a.facts else (b, a)
        models = old.facts["device_model"]
        other = name(new.facts)
        if any(model in other for model in models):
            return f"Records of {old.key} are of an early version, which say {models[0]} alone"
        return ""
    different = [part for part in a.facts if a.facts[part] != b.facts.get(part)]
    without = [m for m in (a, b) if not m.facts["gpus"]]
    if a.facts["nodes"] == b.facts["nodes"] and len(without) == 1:
        return f"Runs of {without[0].key} used no GPU, and the rest is equal"
    if len(different) == 1 and (a.last < b.first or b.last < a.first):
        values = ", ".join(str(m.facts[different[0]]) for m in (a, b))
        return f"They differ in {different[0]} alone ({values}), and one begins where one ends"
    return ""


def _processors(cpu):
    model = _plain(cpu.get("model") or cpu.get("vendor") or "unknown processor")
    sockets, cores = cpu.get("sockets") or "?", cpu.get("cores") or "?"
    return f"{sockets} x {model}, {cores} cores"


def _plain(model):
    """
    >>> _plain("Intel(R) Xeon(R) CPU @ 2.60GHz"), _plain("AMD EPYC 7763 64-Core Processor")
    ('Intel Xeon', 'AMD EPYC 7763 64-Core')
    """
    return " ".join(_SPARE.sub(" ", model).split())
