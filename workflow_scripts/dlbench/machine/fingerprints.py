"""Fingerprints of runs: digests of the hardware and of the software that repeats should share.

They are made from the facts of a run's logs (facts.py) and name these facts in its record, whose
own digest vouches for both. A run on several nodes has the fingerprint of its
nodes where these are equal, else one of the set of them.
"""

import hashlib
import json
from pathlib import Path

from dlbench.machine import redaction

COLUMNS = ("hardware_sha256", "software_sha256")
COMPARED = ("hardware", "software", "limits", "libraries", "variables")
MOST_DIFFERENCES = 4
PACKAGES = Path("results/packages")  # lists of packages, each named by its digest


def digest(facts):
    """SHA-256 of plain values, the order of keys apart."""
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def provenance(machines):
    """What a record keeps of the machine events of its ranks: equal facts once.

    Args:
        machines: the events of each rank, a list for each; several where it was resumed.

    Returns:
        `hardware` and `software` by their digests; of each rank its host and digests, of rank 0
        all it said. {} where nothing is known, as of runs of before.
    """
    if not any(machines):
        return {}
    found = {"hardware": {}, "software": {}}
    ranks = []
    for rank, events in enumerate(machines):
        for event in events:
            said = {"rank": rank, "host": event["present"]["host"]}
            for part, kept in found.items():
                said[f"{part}_sha256"] = name = digest(event[part])
                kept[name] = event[part]
            said["cpus"], said["gpus"] = event["present"]["cpus"], event["present"]["gpus"]
            said["visible"] = event["variables"].get("CUDA_VISIBLE_DEVICES")
            ranks.append(said)
    first = next(events[0] for events in machines if events)
    rest = ("limits", "libraries", "variables", "present", "unknown", "gathered_s")
    return found | {"ranks": ranks} | {name: first.get(name) for name in rest}


def of(known):
    """The columns of the runs table, from a record's provenance; None of what is not known."""
    return {
        f"{part}_sha256": _joined(sorted(known.get(part) or {}))
        for part in ("hardware", "software")
    }


def _joined(digests):
    return digests[0] if len(digests) == 1 else digest(digests) if digests else None


def comparable(known):
    """The facts that repeats should share, from a record's provenance; {} without any."""
    if not known.get("hardware"):
        return {}
    facts = {name: known.get(name) for name in COMPARED}
    for part in ("hardware", "software"):
        nodes = [facts[part][name] for name in sorted(facts[part])]
        facts[part] = nodes[0] if len(nodes) == 1 else nodes
    return facts | {"variables": redaction.shared(facts["variables"])}


class Repeats:
    """Facts of runs, equal ones kept once; says in what repeats differ."""

    def __init__(self):
        self._facts, self._runs = {}, {}

    def add(self, run, known):
        """A run that ended well, with its record's provenance."""
        facts = comparable(known)
        if facts:
            # Digests stand for hardware and software: these are the long ones.
            name = digest([of(known), *(facts[part] for part in COMPARED[2:])])
            self._facts.setdefault(name, facts)
            self._runs.setdefault(run.combination, []).append((run.repeat, run.id, name))

    def differences(self):
        """{run id: in what it differs from the first repeat, in words} of those that differ."""
        found = {}
        for repeats in self._runs.values():
            (_, _, first), *others = sorted(repeats)
            for _, run_id, name in others:
                if name != first:
                    facts = self._facts[first], self._facts[name]
                    found[run_id] = differences(*facts, packages)
        return found


def differences(one, other, packages=lambda digest: None):
    """In what two `comparable` facts differ, in words; "" where in nothing.

    >>> old, new = ({"hardware": {"gpus": {"driver": d}}} for d in ("550.54", "560.35"))
    >>> differences(old, new)
    'hardware gpus driver 560.35, not 550.54'

    Args:
        packages: gives the lines of a list of packages by its digest, None where it is gone.
    """
    was, is_ = dict(_flat(one)), dict(_flat(other))
    found = []
    for name in sorted(was.keys() | is_.keys()):
        before, now = was.get(name), is_.get(name)
        if before == now:
            continue
        if name.endswith("packages_sha256"):
            found += _of_packages(packages(before), packages(now))
        else:
            found.append(f"{name} {_shown(now)}, not {_shown(before)}")
    more = len(found) - MOST_DIFFERENCES
    return "; ".join(found[:MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def packages(name):
    """The lines of a kept list of packages, None where it is gone or was changed."""
    try:
        content = (PACKAGES / f"{name}.txt").read_bytes()
    except OSError:
        return None
    same = hashlib.sha256(content).hexdigest() == name
    return content.decode().splitlines() if same else None


def _of_packages(before, now):
    if before is None or now is None:
        return ["software packages differ (a list of them is missing)"]
    was, is_ = (dict(line.split("==", 1) for line in lines) for lines in (before, now))
    return [
        f"package {name} {is_.get(name, 'missing')}, not {was.get(name, 'missing')}"
        for name in sorted(was.keys() | is_.keys())
        if was.get(name) != is_.get(name)
    ]


def _flat(facts, name=""):
    """(words, value) of all that is no mapping."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            yield from _flat(value, f"{name} {key}".strip())
    else:
        yield name, facts


def _shown(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
