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

# Beginnings of the names of facts, from the likeliest cause on; of all others their names decide.
CLASSES = (
    *("gpus driver", "gpus", "cpu", "tensorflow", "keras", "pytorch", "torch", "jax", "libraries"),
    *("image", "environment", "trainer", "kernel", "memory", "limits", "network", "infiniband"),
    *("storage", "interconnect", "variables", "origin", "module", "python"),
)
# Changes of these are causes, but no events that are news by themselves: they change all the time.
NO_EVENTS = ("host", "dlbench", "packages")
MAX_SHARE = 0.25  # of sessions in which a fact changes that is still an event
MAX_CAUSES = 6
ONE_BY_ONE = ("libraries", "variables", "limits")  # of the provenance, besides its fingerprints


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
    """The facts of the runs of a condition in a session, as texts by their names.

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

    `texts`: the facts of each session as JSON, in the order of dates.
    """
    most = max(1.0, MAX_SHARE * len(texts))
    news = (
        where
        for name, where in _places(texts).items()
        if not name.startswith(NO_EVENTS) and len(where) <= most
    )
    return sorted({at for where in news for at in where})


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
    """(name, value) of the facts of one run; names are where they stand in its provenance."""
    provenance, made_from = record["provenance"], record["made_from"]
    known: set[str] = set()
    for part in ("hardware", "software"):
        for fingerprint in (provenance.get(part) or {}).values():
            yield from _flat("", fingerprint)
            known |= fingerprint.keys()
    # Those of another program are in no fingerprint.
    versions = (provenance.get("versions") or {}).items()
    yield from ((name, version) for name, version in versions if name not in known)
    for part in ONE_BY_ONE:
        yield from _flat(part, provenance.get(part))
    yield from _flat("", provenance.get("site"))
    present, container = provenance.get("present") or {}, provenance.get("container") or {}
    if present.get("memory_bytes"):
        yield "memory size", f"{installed_gib(present['memory_bytes'])} GiB"
    links = sorted({kind for *_, kind in present.get("gpu_links") or () if kind})
    yield "gpus links", ", ".join(links)
    yield "image", container.get("digest")
    yield "environment", made_from.get("environment")
    yield "module list", provenance.get("modules")
    yield "dlbench commit", provenance.get("git_commit")
    yield "dlbench release", provenance.get("release")
    is_external = "trainer" in (provenance.get("user_files") or {})
    yield "trainer program" if is_external else "dlbench code", made_from.get("code")
    yield "host", ", ".join(provenance.get("hosts") or ())


def _flat(name, value):
    """(name, value) of what lies in nested facts, but for names of devices, which may move."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key != "name":
                yield from _flat(f"{name} {key}".strip(), inner)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for one in value:
            yield from _flat(name, one)
    else:
        yield name, value
