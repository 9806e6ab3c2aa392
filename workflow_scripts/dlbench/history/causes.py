"""What changed between two sessions, by their fingerprints, the most probable cause first.

The order of CLASSES is a judgement: what decides the speed of a step comes before what rarely
does. A fact that changed just at the first session of the new level comes before one that changed
near it, and one that changed elsewhere without any change of the level comes later.
"""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench.common import phrases
from dlbench.machine.hardware import installed_gib

Facts = Mapping[str, str]
# Beginnings of the names of facts in words, from the likeliest cause on.
CLASSES = (
    *("GPU driver", "GPU power limit", "GPU clock", "CPU governor", "CPU clock", "CPU boost"),
    *("framework", "CUDA", "library", "image", "environment", "GPU VBIOS", "CPU microcode"),
    *("trainer", "kernel", "GPU ECC", "GPU", "memory", "NUMA", "CPU", "limit", "network"),
    *("InfiniBand", "storage", "interconnect", "variable", "module", "Python", "package", "glibc"),
    *("system", "dlbench", "host"),
)
# Changes of these are causes, but no events that are news by themselves: they change all the time.
NO_EVENTS = ("host", "dlbench", "package")
MAX_SHARE = 0.25  # of sessions in which a fact changes that is still an event
MAX_CAUSES = 6
FRAMEWORKS = ("tensorflow", "keras", "torch", "pytorch", "jax", "jaxlib", "horovod")
PACKAGES = {"python": "Python", "cuda": "CUDA of the framework", "cudnn": "library cuDNN"}


@dataclass(frozen=True)
class Cause:
    """A fact that changed: before and after are its values, "" where it was not recorded."""

    name: str
    before: str
    after: str
    exact: bool

    @property
    def text(self) -> str:
        when = "" if self.exact else " (near it)"
        return f"{self.name} {phrases.short(self.before)} -> {phrases.short(self.after)}{when}"


def facts(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The facts of the runs of a condition in a session, as texts by their names in words.

    A fact with several values has all of them, sorted.
    """
    values: dict[str, set[str]] = {}
    for record in records:
        for name, value in _facts(record):
            if value not in (None, "", [], {}):
                text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
                values.setdefault(name, set()).add(text)
    return {name: " and ".join(sorted(texts)) for name, texts in sorted(values.items())}


@functools.lru_cache(maxsize=100_000)
def changed(before: str, after: str) -> tuple[str, ...]:
    """The names of the facts that differ between two texts of them as JSON.

    What only one of the two has is left out: another version of dlbench may record more.
    """
    if before == after:
        return ()
    old, new = parsed(before), parsed(after)
    return tuple(name for name in old if name in new and old[name] != new[name])


@functools.lru_cache(maxsize=100_000)
def parsed(text: str) -> dict[str, str]:
    """The facts in a text of them."""
    return json.loads(text)


def events(texts: Sequence[str]) -> list[int]:
    """Positions in a series of sessions at which something changed that is an event.

    Args:
        texts: the facts of each session as JSON, in the order of dates.
    """
    places = _places(texts)
    most = max(1.0, MAX_SHARE * len(texts))
    return sorted(
        {
            at
            for name, where in places.items()
            if not name.startswith(NO_EVENTS) and len(where) <= most
            for at in where
        }
    )


def ranked(
    texts: Sequence[str], at: int, first: int, last: int, others: Iterable[int] = ()
) -> list[Cause]:
    """What changed between the sessions at which the level of a series changed.

    Args:
        texts: the facts of each session as JSON, in the order of dates.
        at: the first session of the new level, probably; certainly from `first` to `last`.
        others: positions of the other changes of the series.
    """
    places, explained = _places(texts), {at, *others}
    found = []
    for name, where in places.items():
        near = [place for place in where if first <= place <= last]
        if not near:
            continue
        place = at if at in near else min(near, key=lambda one: abs(one - at))
        elsewhere = sum(not first <= one <= last and one not in explained for one in where)
        key = (place != at, elsewhere, _class(name), name)
        old, new = parsed(texts[place - 1]).get(name, ""), parsed(texts[place])[name]
        found.append((key, Cause(name, old, new, place == at)))
    return [cause for _, cause in sorted(found, key=lambda item: item[0])][:MAX_CAUSES]


def between(pairs: Iterable[tuple[str, str]]) -> list[Cause]:
    """What differs between pairs of facts as JSON, before and after; each once, likeliest first."""
    found = {
        Cause(name, parsed(before)[name], parsed(after)[name], exact=True)
        for before, after in pairs
        for name in changed(before, after)
    }
    return sorted(found, key=lambda cause: (_class(cause.name), cause.name, cause.before))


def _places(texts):
    """{name of a fact: the positions at which it changed}."""
    places: dict[str, list[int]] = {}
    for at in range(1, len(texts)):
        if texts[at] != texts[at - 1]:
            for name in changed(texts[at - 1], texts[at]):
                places.setdefault(name, []).append(at)
    return places


def _class(name):
    return next((i for i, start in enumerate(CLASSES) if name.startswith(start)), len(CLASSES))


def _facts(record):
    """(name, value) of the facts of one run."""
    provenance, made_from = record["provenance"], record["made_from"]
    site, container = provenance.get("site") or {}, provenance.get("container") or {}
    for hardware in (provenance.get("hardware") or {}).values():
        yield from _hardware(hardware)
    known: set[str] = set()
    for software in (provenance.get("software") or {}).values():
        yield from _software(software)
        known |= software.keys()
    for name, version in (provenance.get("versions") or {}).items():
        if name not in known:  # as what other programs say of themselves
            yield _package(name), version
    yield from _named("library", provenance.get("libraries"))
    yield from _named("variable", provenance.get("variables"))
    yield from _named("limit", provenance.get("limits"))
    for name, value in _present(provenance):
        yield name, value
    yield "image", container.get("digest")
    yield "environment", made_from.get("environment")
    yield "module list", provenance.get("modules")
    yield "storage", site.get("storage")
    yield "interconnect", site.get("interconnect")
    yield "dlbench commit", provenance.get("git_commit")
    yield "dlbench release", provenance.get("release")
    is_external = "trainer" in (provenance.get("user_files") or {})
    yield "trainer program" if is_external else "dlbench code", made_from.get("code")
    yield "host", ", ".join(provenance.get("hosts") or ())


def _present(provenance):
    present = provenance.get("present") or {}
    if present.get("memory_bytes"):
        yield "memory size", f"{installed_gib(present['memory_bytes'])} GiB"
    links = sorted({kind for *_, kind in present.get("gpu_links") or () if kind})
    yield "GPU links", ", ".join(links)


def _hardware(hardware):
    cpu, memory = hardware.get("cpu") or {}, hardware.get("memory") or {}
    gpus, system = hardware.get("gpus") or {}, hardware.get("system") or {}
    yield "GPU driver", gpus.get("driver")
    yield "CUDA of the driver", gpus.get("cuda_driver")
    for kind in gpus.get("kinds") or ():
        for name, value in kind.items():
            if name != "name":
                yield f"GPU {GPU_WORDS.get(name, name.replace('_', ' '))}", value
    yield "CPU microcode", cpu.get("microcode")
    yield "CPU governor", ", ".join(cpu.get("governors") or ())
    yield "CPU clock limits", cpu.get("frequency_mhz")
    yield "CPU clock driver", ", ".join(cpu.get("frequency_driver") or ())
    for name in ("boost", "smt", "threads", "features"):
        yield f"CPU {name}", cpu.get(name)
    yield "NUMA nodes", len(cpu.get("numa") or ()) or None
    yield "memory huge pages", memory.get("transparent_huge_pages")
    yield "network", [_without_name(one) for one in hardware.get("network") or ()]
    for port in hardware.get("infiniband") or ():
        for name in ("firmware", "rate", "state"):
            yield f"InfiniBand {name}", port.get(name)
    yield "system product", system.get("product_name")


GPU_WORDS = {
    "vbios": "VBIOS",
    "ecc": "ECC",
    "mig": "MIG",
    "power_limit_w": "power limit",
    "clock_sm_application_mhz": "clock of applications",
    "clock_memory_application_mhz": "clock of memory",
    "clock_sm_max_mhz": "clock, most",
    "clock_memory_max_mhz": "clock of memory, most",
}


def _without_name(interface):
    return {name: value for name, value in interface.items() if name != "name"}


def _software(software):
    for name, value in software.items():
        if isinstance(value, dict):
            for part, inner in value.items():
                yield f"framework {name} {part}", inner
        elif name == "packages_sha256":
            yield "package list", value
        elif name in ("os", "kernel", "glibc"):
            yield {"os": "system"}.get(name, name), value
        else:
            yield _package(name), value


def _package(name):
    if name in PACKAGES:
        return PACKAGES[name]
    return f"framework {name}" if name in FRAMEWORKS else f"package {name}"


def _named(word, values):
    for name, value in (values or {}).items():
        yield f"{word} {name}", value
