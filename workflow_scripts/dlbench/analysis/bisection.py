"""Which nodes of failed groups are at fault, and what to measure next to find them.

- A group that passes clears its nodes. Of a failed group those that no group has cleared are
  suspect: several are split in halves, and each half is measured.
- A group has at least two nodes, as one alone exchanges nothing: a single suspect is measured with
  a node that is cleared. It is bad if it is all that its failed groups have in common, so that no
  link to one other node explains them.
- Where no node is cleared, pairs that were not measured yet are, in each round as many as in all
  before.
- Of a failed group whose nodes all passed in others, the halves are measured, until a group fails
  and its halves pass: then the fault lies between them, or appears at that size.
- With n nodes of which two or more are good, and groups that fail where one of their nodes is bad,
  all are known after at most 2 log2 n + 4 rounds; a single bad one of a group after log2 n + 3.
  Groups of a round without a common node may be measured at the same time.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SMALLEST = 2  # nodes of a group

Group = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """What is known after some rounds, and the groups of the next.

    Attributes:
        good: nodes that were in a group that passed.
        bad: nodes that fail in whatever group.
        together: smallest groups that failed while each of their nodes passed in other groups.
        groups: to be measured next; () if nothing can be learnt from more.
        undecided: nodes of which nothing is known and no further group would tell: no two nodes
            have passed together.
    """

    good: Group
    bad: Group
    together: tuple[Group, ...]
    groups: tuple[Group, ...]
    undecided: Group = ()


def next_step(nodes: Sequence[str], passed: Mapping[frozenset[str], bool]) -> Step:
    """The Step that follows from what was measured.

    Args:
        nodes: in the order of their network, so that neighbours are in one half.
        passed: {group: whether it passed}, of groups of two or more nodes.
    """
    order = {name: place for place, name in enumerate(dict.fromkeys(nodes))}
    known = {group: good for group, good in passed.items() if group <= order.keys()}
    good = frozenset(name for group, fine in known.items() if fine for name in group)
    failed = [group for group, fine in known.items() if not fine]
    suspects = {group - good for group in failed}
    accused = {
        name: frozenset.intersection(*(group for group in failed if group - good == {name}))
        for alone in suspects
        if len(alone) == 1
        for name in alone
    }
    bad = frozenset(name for name, common in accused.items() if common == {name})
    open_ = [name for name in order if name not in good | bad]
    groups: list[frozenset[str]] = []
    if not good:
        groups = _without_help(open_, suspects, known)
    else:
        for part in _parts(open_, suspects, accused):
            beside = accused.get(part[0], frozenset()) if len(part) == 1 else frozenset()
            groups += _with_help(part, _sorted(good, order), beside, known, groups)
    together, halves = _narrowed([group for group in failed if group <= good], order, known)
    groups += [half for half in halves if half not in groups]
    return Step(
        good=_sorted(good, order),
        bad=_sorted(bad, order),
        together=tuple(sorted(_sorted(group, order) for group in together)),
        groups=tuple(_sorted(group, order) for group in groups),
        undecided=() if groups else tuple(open_),
    )


def pairs(nodes: Sequence[str]) -> tuple[Group, ...]:
    """Nodes in pairs of neighbours; of an odd number the last is in a pair with the first.

    >>> pairs(["a", "b", "c"]), pairs(["a"])
    ((('a', 'b'), ('a', 'c')), ())
    """
    names = list(dict.fromkeys(nodes))
    found = list(zip(names[::2], names[1::2], strict=False))
    if len(names) % 2 and len(names) > 1:
        found.append((names[0], names[-1]))
    return tuple(found)


def _parts(open_, suspects, accused):
    """Sets of nodes that are to be measured: halves of suspects, and those that no group accuses.

    The smallest suspected sets come first, as a node is measured once in a round.
    """
    place = {name: number for number, name in enumerate(open_)}
    left = set(open_)
    for group in sorted(suspects, key=lambda group: (len(group), sorted(group))):
        if len(group) > 1 and not group & accused.keys() and group <= left:
            names = sorted(group, key=place.__getitem__)
            half = (len(names) + 1) // 2
            yield from (names[:half], names[half:])
            left -= group
    yield from ([name] for name in open_ if name in accused)
    # Those beside an accused node, and those that were never measured.
    rest = [name for name in open_ if name in left and name not in accused]
    yield from (rest[n : n + SMALLEST] for n in range(0, len(rest), SMALLEST))


def _with_help(part, good, beside, known, groups):
    """[the group of some nodes, with a cleared one if they are too few or were measured so].

    Args:
        beside: who was in all failed groups of a single node, and says the least about it.
        groups: of this round so far; a helper that is in none of them is free.
    """
    taken = frozenset[str]().union(*groups)
    helpers = sorted(good, key=lambda name: (name in beside, name in taken))
    alone = [frozenset(part)] if len(part) >= SMALLEST else []
    candidates = itertools.chain(alone, (frozenset((*part, helper)) for helper in helpers))
    return list(itertools.islice((group for group in candidates if group not in known), 1))


def _without_help(open_, suspects, known):
    """Groups where no node is cleared: halves of what failed, then pairs that are new."""
    if not known:
        return [frozenset(pair) for pair in pairs(open_)]
    halves = [frozenset(part) for part in _parts(open_, suspects, {})]
    fresh = [half for half in halves if len(half) >= SMALLEST and half not in known]
    if fresh:
        return fresh
    tried = sum(len(group) == SMALLEST for group in known)
    number, count = len(open_), max(len(open_) // 2, tried)
    distances = (
        frozenset((open_[first], open_[(first + distance) % number]))
        for distance in range(1, number // 2 + 1)
        for first in range(number)
    )
    unmeasured = dict.fromkeys(pair for pair in distances if pair not in known)
    return list(itertools.islice(unmeasured, count))


def _narrowed(failed, order, known):
    """(smallest of some failed groups, halves to be measured to make them smaller)."""
    smallest, halves = [], []
    for group in failed:
        names = _sorted(group, order)
        cut = (len(names) + 1) // 2
        # Of three, and of two, a half has one node, which passes.
        parts = [frozenset(part) for part in (names[:cut], names[cut:]) if len(part) >= SMALLEST]
        halves += [part for part in parts if part not in known]
        if all(known.get(part) for part in parts):
            smallest.append(group)
    return smallest, list(dict.fromkeys(halves))


def _sorted(group: Iterable[str], order: Mapping[str, int]) -> Group:
    return tuple(sorted(group, key=order.__getitem__))
