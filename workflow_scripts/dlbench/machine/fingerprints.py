"""Fingerprints of runs: digests of the hardware and of the software that repeats should share.

They are digests of the facts in a run's logs (facts.py), and the keys of these facts in its record.
If all nodes of a run have the same fingerprint, it is that of the run; otherwise that of the run is
the digest of the sorted list of the nodes' fingerprints.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlbench.common import phrases
from dlbench.common.files import json_digest
from dlbench.machine import redaction

COLUMNS = ("hardware_sha256", "software_sha256")
COMPARED = ("hardware", "software", "limits", "libraries", "variables")
MAX_DIFFERENCES = 4
PACKAGES = Path("results/packages")  # one list of packages for each digest


def provenance(machines: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The facts of its ranks' machine events that a record has.

    They are `hardware` and `software` by their digests, equal facts once; `ranks`, with the host
    and the digests of each rank; the other facts of rank 0. {} if there are no events.

    `machines`: the events of each rank; a run that was resumed has several.
    """
    if not any(machines):
        return {}
    by_digest: dict[str, dict[str, Any]] = {"hardware": {}, "software": {}}
    ranks = []
    for rank, events in enumerate(machines):
        for event in events:
            present = event["present"]
            entry = {"rank": rank, "host": present["host"]}
            for part, facts in by_digest.items():
                entry[f"{part}_sha256"] = sha256 = json_digest(event[part])
                facts[sha256] = event[part]
            entry["cpus"], entry["gpus"] = present["cpus"], present["gpus"]
            entry["visible"] = event["variables"].get("CUDA_VISIBLE_DEVICES")
            ranks.append(entry)
    first = next(events[0] for events in machines if events)
    rest = ("limits", "libraries", "variables", "present", "unknown", "gathered_s")
    return by_digest | {"ranks": ranks} | {name: first.get(name) for name in rest}


def columns(provenance: dict[str, Any]) -> dict[str, str | None]:
    """Fingerprints and origin of the software (but EasyBuild's roots) of a run; None: not known."""
    flat = [dict(_flat(one.get("origin"))) for one in (provenance.get("software") or {}).values()]
    origins = {f"{k} {v}" for one in flat for k, v in one.items() if v and "EBROOT" not in k}
    return {
        f"{part}_sha256": _joined(sorted(provenance.get(part) or {}))
        for part in ("hardware", "software")
    } | {"software_origin": ", ".join(sorted(origins)) or None}


def unlike_nodes(provenance: dict[str, Any]) -> str:
    """A sentence about how the nodes of one run differ; "" if they do not."""
    nodes: dict[str, dict[str, Any]] = {}
    for rank in provenance.get("ranks") or ():
        parts = {part: provenance[part].get(rank.get(f"{part}_sha256")) for part in COMPARED[:2]}
        nodes.setdefault(rank["host"], parts)
    if len(nodes) < 2:
        return ""
    (first, facts), *others = nodes.items()
    unlike = [
        f"{host} has {how} as {first}"
        for host, its_facts in others
        if (how := differences(facts, its_facts, read_packages))
    ]
    return f"it ran on unlike nodes: {'; '.join(unlike)}" if unlike else ""


def _joined(digests):
    return digests[0] if len(digests) == 1 else json_digest(digests) if digests else None


def comparable(provenance: dict[str, Any]) -> dict[str, Any]:
    """The facts that repeats should share, from a record's provenance; {} if it has none."""
    if not provenance.get("hardware"):
        return {}
    facts: dict[str, Any] = {name: provenance.get(name) for name in COMPARED}
    for part in ("hardware", "software"):
        nodes = [facts[part][name] for name in sorted(facts[part])]
        facts[part] = nodes[0] if len(nodes) == 1 else nodes
    return facts | {"variables": redaction.shared_variables(facts["variables"])}


class Repeats:
    """Facts of runs, equal ones kept once, and how those of repeats differ."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}  # by their digest
        self._repeats: dict[Any, list[tuple[int, str, str]]] = {}  # by combination

    def add(self, run: Any, provenance: dict[str, Any]) -> None:
        """Add a Run that succeeded, with the provenance of its record."""
        facts = comparable(provenance)
        if facts:
            # Hardware and software are long; their digests stand for them.
            key = json_digest([columns(provenance), *(facts[part] for part in COMPARED[2:])])
            self._facts.setdefault(key, facts)
            self._repeats.setdefault(run.combination, []).append((run.repeat, run.id, key))

    def differences(self) -> dict[str, str]:
        """By run id, a text on how a run differs from the first repeat; equal runs are left out."""
        texts = {}
        for repeats in self._repeats.values():
            (_, _, first), *others = sorted(repeats)
            for _, run_id, key in others:
                if key != first:
                    facts = self._facts[first], self._facts[key]
                    texts[run_id] = differences(*facts, read_packages)
        return texts


def differences(
    one: dict[str, Any],
    other: dict[str, Any],
    packages: Callable[[Any], list[str] | None] = lambda digest: None,
) -> str:
    """A text on how two `comparable` facts differ; "" if they are equal.

    >>> old, new = ({"hardware": {"gpus": {"driver": d}}} for d in ("550.54", "560.35"))
    >>> differences(old, new)
    'hardware gpus driver 560.35, not 550.54'

    `packages`: returns the lines of a list of packages by its digest; None if it is lost.
    """
    expected, actual = dict(_flat(one)), dict(_flat(other))
    texts = []
    for name in sorted(expected.keys() | actual.keys()):
        before, now = expected.get(name), actual.get(name)
        if before == now:
            continue
        if name.endswith("packages_sha256"):
            texts += _package_differences(packages(before), packages(now))
        else:
            texts.append(f"{name} {phrases.short(now)}, not {phrases.short(before)}")
    more = len(texts) - MAX_DIFFERENCES
    return "; ".join(texts[:MAX_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def read_packages(sha256: str) -> list[str] | None:
    """The lines of a list of packages, by its digest; None if it is lost or was changed."""
    try:
        content = (PACKAGES / f"{sha256}.txt").read_bytes()
    except OSError:
        return None
    unchanged = hashlib.sha256(content).hexdigest() == sha256
    return content.decode().splitlines() if unchanged else None


def _package_differences(before, now):
    if before is None or now is None:
        return ["software packages differ (a list of them is missing)"]
    old, new = (dict(line.split("==", 1) for line in lines) for lines in (before, now))
    return [
        f"package {name} {new.get(name, 'missing')}, not {old.get(name, 'missing')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _flat(facts, name=""):
    """(path of keys, value) of each value in nested mappings."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            yield from _flat(value, f"{name} {key}".strip())
    else:
        yield name, facts
