"""Sentinels: finished runs that a start repeats among the new ones.

Runs that are added later are measured at another time than those that they are compared with. A
finished condition that is measured again beside them shows how the machine drifted in between
(dlbench/analysis/drift.py).

- `auto` chooses, of the finished conditions that new ones are compared with, one for each number of
  nodes and devices: first bases of `compare`, then bases of speedups, then the shortest. It takes
  as many repeats as the condition has finished, within SHARE of the session's time in all.
- Only conditions without a run to be trained are chosen, since others are measured again anyway;
  and only if some conditions are new, since further repeats of a condition share a session with
  what it is compared with.
- Sentinels are interleaved with the runs to be trained. They are not part of the study, and no
  later start repeats them.
- They measure drift. They also count as repeats of their conditions if `sentinels_are_repeats` is
  set and they completed.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlbench.records import costs, judgement, run_record, sessions
from dlbench.study import config, matrix
from dlbench.study.runs import CONDITION, Run, shared_values, shuffled

SHARE = 0.2  # of a session's time that sentinels of `auto` may take
MIN_REPEATS = 3  # of a condition, which an estimate of drift needs (judge.MIN_RUNS)
UNRELATED = 4  # rank of conditions that no new one is compared with
_NONE_OF: dict[type, str] = {str: "the new conditions are compared with", list: "`sentinels` means"}
PLANNED = "a sentinel: it repeats a finished run, to see how the machine drifted"


@dataclass(frozen=True)
class Chosen:
    """The sentinels of a session, and a message: which they are and their cost, or why none."""

    runs: tuple = ()
    message: str = ""


def choose(study: config.Study, to_train: list[Run], took_s: dict[str, float]) -> Chosen:
    """Choose the sentinels of a new session.

    Args:
        to_train: the runs of the study to be trained.
        took_s: {run id: seconds} of its valid runs that completed and could be repeated here.
    """
    to_train = [run for run in to_train if not run.probe]
    if study.sentinels == "none" or not to_train or not took_s:
        return Chosen()
    min_repeats = MIN_REPEATS if study.sentinels == "auto" else 1
    finished, new = _conditions(study.without_probes, to_train, took_s, min_repeats)
    ordered = _ordered(study, finished, new, took_s)
    if study.sentinels == "auto":
        if not new:
            return _none("each condition to be trained has finished runs")
        ordered = [
            condition for condition in _first_of_each_shape(ordered) if condition.rank < UNRELATED
        ]
    elif isinstance(study.sentinels, int):
        first = _first_of_each_shape(ordered)
        others = [condition for condition in ordered if condition not in first]
        ordered = [*first, *others][: study.sentinels]
    elif isinstance(study.sentinels, list):
        matching = matrix.lookup(study.sentinels)
        ordered = [c for c in ordered if matching(c.runs[0].value)]
    if not ordered:
        subject = _NONE_OF.get(type(study.sentinels), "there is")
        return _none(
            f"{subject} no condition that has {min_repeats} finished "
            f"repeat{'s' if min_repeats > 1 else ''} or more and none to be trained"
        )
    estimates = costs.Estimates(study.runs, lambda run: took_s.get(run.id))
    new_s = _node_s(to_train, estimates)
    chosen = [run for condition in ordered for run in condition.runs]
    if study.sentinels == "auto":
        chosen = _affordable(chosen, estimates, SHARE / (1 - SHARE) * new_s)
    if not chosen:
        least_s = _node_s(ordered[0].runs[:MIN_REPEATS], estimates)
        return _none(
            f"{MIN_REPEATS} repeats of {_condition_label(ordered[0].runs[0], study)} would take "
            f"{least_s / (least_s + new_s):.0%} of the session, more than {SHARE:.0%}; "
            "`sentinels: 1` repeats it all the same"
        )
    number = 1 + max((int(m["sentinel"]) for m in sessions.existing_ids()), default=0)
    repeats_s = _node_s(chosen, estimates)
    share = repeats_s / (repeats_s + new_s)
    repeats = Counter(_condition_label(run, study) for run in chosen)
    return Chosen(
        tuple(replace(run, sentinel=number) for run in chosen),
        f"sentinels: {len(chosen)} runs repeat finished ones among the new, about "
        f"{costs.node_hours(repeats_s / 3600)}, {share:.0%} of the session: "
        + "; ".join(f"{name} ({count} repeats)" for name, count in repeats.items()),
    )


def sentinels_of_session(
    study: config.Study, to_train: list[Run], took_s: dict[str, float]
) -> Chosen:
    """The sentinels that the current session's start chose, for its jobs; signature of `choose`."""
    return of_values(sessions.sentinels())


def of_values(sentinels: Iterable[dict[str, Any]]) -> Chosen:
    """The sentinels with these values, as `Run.values` returns them."""
    return Chosen(tuple(Run(**values) for values in sentinels))


def order(
    runs: Iterable[Run], to_train: Iterable[Run], sentinels: Iterable[Run], seed: int
) -> list[Run]:
    """All runs in order of execution, the sentinels spread evenly over those to be trained."""
    blocks = sorted({run.repeat for run in to_train}) or [1]
    of_condition: dict[Run, list[Run]] = {}
    for run in sentinels:
        of_condition.setdefault(run.combination, []).append(run)
    place = {
        run.id: blocks[index * len(blocks) // len(repeats)]
        for repeats in of_condition.values()
        for index, run in enumerate(repeats)
    }
    return shuffled([*runs, *sentinels], seed, lambda run: place.get(run.id, run.repeat))


def finished(
    study: config.Study, basis: judgement.Basis, results: Path = run_record.RESULTS
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield (Run, record) of each sentinel of a study with a valid record.

    Unfinished ones are left out silently, damaged and outdated ones with a message on stderr.
    `results`: folder of all results.
    """
    for _, run in sorted(sessions.sentinels_of(study.without_probes, results=results).items()):
        place = run_record.folder(run.id, results)
        if not (place / "run.json").exists():
            continue
        try:
            record = _read(run, place)
        except run_record.RecordError as error:
            _print_left_out(run, str(error))
            continue
        if reason := judgement.outdated(run, record, False, basis.without_limit):
            _print_left_out(run, reason)
        else:
            yield run, record


def _read(run, place):
    """The record of a sentinel, with its files checked; parsed again if another version made it."""
    record = run_record.read_whole(place, run.id, content=True)
    if record["parser_version"] != run_record.PARSER_VERSION:
        from dlbench.records import parse_run  # late: plans have no use for it

        parse_run.parse(run, place / "train.jsonl", place / "run.json")
        record = run_record.read(place / "run.json")
    return record


def _print_left_out(run, why):
    print(f"{run.label()}: left out of the tables: {why}", file=sys.stderr)


def _none(why):
    return Chosen(message=f"no sentinels: {why}")


@dataclass(frozen=True)
class _Condition:
    """A finished condition: its rank (0: a base of new conditions), mean cost and runs."""

    rank: int
    seconds: float
    runs: tuple

    @property
    def shape(self):
        return self.runs[0].nodes, self.runs[0].devices_per_node


def _conditions(runs, to_train, took_s, min_repeats):
    """{combination: its finished runs} of conditions with no run to be trained, and the new
    conditions as a list of combinations.
    """
    to_do = {run.combination for run in to_train}
    finished = {}
    for run in runs:
        if run.id in took_s:
            finished.setdefault(run.combination, []).append(run)
    new = [combination for combination in to_do if combination not in finished]
    chosen = {c: r for c, r in finished.items() if c not in to_do and len(r) >= min_repeats}
    return chosen, new


def _ordered(study, finished, new, took_s):
    """The finished conditions, sorted by rank and cost."""
    ranks = _ranks(study, finished, new)
    conditions = [
        _Condition(
            ranks[combination],
            sum(run.nodes * took_s[run.id] for run in runs) / len(runs),
            tuple(sorted(runs, key=lambda run: run.repeat)),
        )
        for combination, runs in finished.items()
    ]
    return sorted(conditions, key=lambda c: (c.rank, c.seconds, c.runs[0].id))


def _ranks(study, finished, new):
    """{finished condition: rank}; the lower, the more it says about the new conditions."""
    tasks = {(c.model, c.dataset) for c in new}
    min_devices = {}
    for c in finished:
        task = c.model, c.dataset
        min_devices[task] = min(c.devices, min_devices.get(task, c.devices))
    ranks = dict.fromkeys(finished, UNRELATED)
    # From the weakest relation to the strongest, which overwrites the others.
    for field in ("model", "dataset"):
        alike = {_key(c, (field,)) for c in new}
        ranks |= {c: 3 for c in finished if _key(c, (field,)) in alike}
    ranks |= {c: 2 for c in finished if (c.model, c.dataset) in tasks}
    ranks |= {
        c: 1 for c in finished if ranks[c] == 2 and c.devices == min_devices[c.model, c.dataset]
    }
    for entry in study.compare:
        field, base = entry["field"], entry["base"]
        fields = (field, *config.COMPANIONS.get(field, ()))
        compared = {_key(c, fields) for c in new if c.value(field) != base}
        bases = (c for c in finished if c.value(field) == base)
        ranks |= {c: 0 for c in bases if _key(c, fields) in compared}
    return ranks


def _key(run, left_out):
    return shared_values(run, CONDITION, left_out)


def _first_of_each_shape(conditions):
    firsts = {}
    for condition in conditions:
        firsts.setdefault(condition.shape, condition)
    return list(firsts.values())


def _affordable(runs, estimates, limit_s):
    """The first sentinels that together take no longer than a limit."""
    affordable = list(runs)
    while affordable and _node_s(affordable, estimates) > limit_s:
        last = affordable.pop().combination
        if sum(run.combination == last for run in affordable) < MIN_REPEATS:
            affordable = [run for run in affordable if run.combination != last]
    return affordable


def _node_s(runs, estimates):
    return sum(run.nodes * (estimates.of(run)[0] or 0.0) for run in runs)


def _condition_label(run, study):
    """The label of a run's condition."""
    return study.labels[run.id].rpartition(", repeat ")[0]
