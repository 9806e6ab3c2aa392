"""Judge a session of a history by the sessions before it: the gate of upgrades and of CI.

- The base of a condition are the sessions of the same site and machine since its last confirmed
  change, as analyse_history.py finds it in what was known before; or one session that is named,
  also an earlier one. The scatter is that of the sessions since the change.
- A session is judged by a prediction interval: the level, plus or minus t of k - 1 degrees of
  freedom times s sqrt(1 + 1 / k), s the standard deviation of the k means of logarithms
  (G. J. Hahn, W. Q. Meeker, Statistical Intervals, 1991, section 4.8). So s has the scatter between
  sessions and that of repeats; where the new session has another number of repeats, it is corrected
  by the scatter of repeats.
- All conditions of a session are one family (dlbench/analysis/judge.py), so that at most 5 % of
  whole sessions without a change fail. A change below the least size fails nothing.
- Nothing fails that is no farther off, in its errors, than past sessions were, each by its farthest
  condition: one of 20 may have been, of fewer sessions none. Tails that are heavier than those of
  the interval show there.
- For the level and the scatter outliers count as there: as if they lay just so far off.
- Below MIN_SESSIONS the scatter between sessions is not known well enough, and nothing is judged.
- A condition that failed, or that the last session of the same study had and this one has not,
  fails.
- A tag is a name that the config gives to sessions, as `tags: {accepted: [SESSION, SESSION]}`. It
  may have one of each machine and study: that of the judged session is taken.
"""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import special

from dlbench import Error
from dlbench.analysis.estimates import CONFIDENCE, Difference, Estimate
from dlbench.analysis.judge import ALPHA
from dlbench.analysis.judge import judge as judge_differences
from dlbench.common import phrases
from dlbench.common.phrases import did_you_mean
from dlbench.history import analyse_history, causes, change_points, dataset, sources
from dlbench.history.history_rows import LABELS, HistoryRows, day, to_time
from dlbench.log.metrics import HIGHER, LOWER
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study import wording

SINCE_CHANGE, LAST = "since-change", "last"  # any other base is a tag or the name of a session
Tags = Mapping[str, str | Sequence[str]]
SIZES = (0.01, 0.02, 0.05)  # of losses of which the power is stated
RESOLUTION = 1e-9  # equal values differ by rounding
MIN_SESSIONS = 8
LEAST = 0.01  # a smaller change fails nothing
PASS, WORSE, BETTER, CHANGED = "pass", "worse", "better", "changed"
FAILED, MISSING, DISTURBED = "failed", "missing", "disturbed"
TOO_FEW, NEW = "too little data", "new"
FAILING = (WORSE, CHANGED, FAILED, MISSING, DISTURBED)
VERDICTS = (*FAILING, BETTER, TOO_FEW, NEW, PASS)  # in the order in which they are shown


@dataclass(frozen=True)
class Prediction:
    """What the mean of the logarithm of a new session is expected to be.

    Attributes:
        level: of the base; `error`: standard error of the difference of a new mean from it.
        freedom: degrees of freedom of the error.
        least: how many errors past sessions were off: nearer means prove nothing.
    """

    level: float
    error: float
    freedom: int
    least: float = 0.0

    def off(self, mean: float) -> Difference:
        """How far a mean is off the level."""
        runs = 1, self.freedom + 1  # sessions
        return Difference(mean - self.level, self.error, self.freedom, math.nan, runs)

    @property
    def expected(self) -> Estimate:
        """The level with the interval that the mean of a new session is expected in."""
        ends = self.off(self.level).interval(CONFIDENCE)
        low, high = (math.exp(self.level + end) for end in ends)
        return Estimate(math.exp(self.level), low, high, self.freedom + 1)

    def power(self, size: float, least: float, family: int) -> float:
        """The chance that a loss of a size, as a share, fails among so many conditions."""
        critical = float(special.stdtrit(self.freedom, 1 - ALPHA / 2 / family))
        critical = max(critical, self.least, -math.log1p(-least) / self.error)
        shift = -math.log1p(-size) / self.error
        return 1 - float(special.nctdtr(self.freedom, shift, critical))


@dataclass(frozen=True)
class Judged:
    """A condition of a session.

    Attributes:
        verdict: of PASS to NEW; `reason`: why, where numbers do not say it.
        runs: of the session that completed and were not disturbed.
        mean_log: mean of the logarithms of their values; None: there are none.
        sessions: number of sessions that the prediction rests on.
        p: that nothing changed, adjusted for all conditions of the session.
    """

    condition_id: str
    condition: str
    metric: str
    unit: str
    better: str
    verdict: str = PASS
    reason: str = ""
    runs: int = 0
    mean_log: float | None = None
    sessions: int = 0
    prediction: Prediction | None = None
    p: float | None = None

    @property
    def ratio(self) -> float | None:
        """What was measured over what was expected."""
        if self.prediction is None or self.mean_log is None:
            return None
        return math.exp(self.mean_log - self.prediction.level)


@dataclass(frozen=True)
class Gate:
    """A session of a history, judged.

    Attributes:
        base: SINCE_CHANGE, LAST, or the name of a session; `tag`: the one that named it, or "".
        base_first, base_last: starts of the first and the last session that any condition is
            judged by; None: there is none.
        others: if this machine was never measured before: those that were.
        changed: what differs in the fingerprints between the last session of the base and this,
            as "name before -> after".
        least: the least size of a change that fails, as a share.
        refused: files of the history that cannot be read, and why.
        allowed: verdicts that fail nothing, of FAILING.
    """

    session: str
    study: str | None
    site: str
    machine_id: str
    machine: str
    started_at: datetime
    base: str
    base_first: datetime | None
    base_last: datetime | None
    others: tuple[str, ...]
    changed: tuple[str, ...]
    least: float
    judged: tuple[Judged, ...]
    allowed: tuple[str, ...] = ()
    tag: str = ""
    refused: tuple[str, ...] = ()

    @property
    def failures(self) -> list[Judged]:
        """Conditions that fail the gate."""
        failing = {*FAILING} - {*self.allowed}
        return [one for one in self.judged if one.verdict in failing]

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def age_days(self) -> float | None:
        """Days from the last session of the base to this one."""
        if self.base_last is None:
            return None
        return (self.started_at - self.base_last).total_seconds() / 86400

    @property
    def counts(self) -> Counter[str]:
        """{verdict: number of conditions}."""
        return Counter(one.verdict for one in self.judged)


def judge(
    folder: Path,
    names_of_machines: Mapping[str, Sequence[str]],
    session: str | None = None,
    base: str = SINCE_CHANGE,
    least: float = LEAST,
    allowed: Collection[str] = (),
    tags: Tags | None = None,
) -> Gate:
    """Judge a session of a history; None: the newest.

    `names_of_machines` and `tags` are `machines` and `tags` of a config; `base`: SINCE_CHANGE, LAST
    (the session before), a tag, or the name of a session. Raises Error: the history is empty, or
    has no session of that name, or no such tag.
    """
    names = sources.machine_names(names_of_machines)
    standings = dataset.standings(folder)
    table, damaged = dataset.read(folder, standings, analyse_history.COLUMNS)
    if not len(table):
        raise Error(
            f"{folder}: expected a history with sessions (site=*/year=*/*.parquet), found none: "
            "`uv run snakemake history` makes one from the campaigns that a config names"
        )
    columns = HistoryRows(table, names)
    rows = _rows_of_session(columns, session, folder)
    start = columns.dates[rows].min()
    before = HistoryRows(table.filter(pa.array(columns.dates < start)), names)
    judged = _Judge(columns, rows, before, base, least, tags or {}).gate(tuple(allowed))
    refused = tuple(
        f"{one.file}: {one.reason}"
        for one in (*standings, *damaged)
        if one.standing in (dataset.CONTRADICTORY, dataset.DAMAGED)
    )
    return replace(judged, tag=base if base in (tags or {}) else "", refused=refused)


def _rows_of_session(columns, session, folder):
    """The rows of a session, or of the newest."""
    if session is None:
        session = columns.text("session", np.argmax(columns.dates))
    rows = np.flatnonzero(columns.where("session", session))
    if not len(rows):
        hint = did_you_mean(session, columns.texts["session"])
        raise Error(f"{folder}: it has no session {session!r}{hint}")
    sites = sorted({columns.text("site", row) for row in rows})
    if len(sites) > 1:
        raise Error(f"session {session} is of several sites: {', '.join(sites)}")
    return rows


class _Judge:
    """Judges the rows of one session by those before it."""

    def __init__(self, columns, rows, before, base, least, tags):
        self._columns, self._rows, self._before, self._least = columns, rows, before, least
        row = rows[0]
        self._site = columns.text("site", row)
        self._machine_id = columns.text("machine_id", row)
        here = before.where("site", self._site), before.where("machine_id", self._machine_id)
        self._here = np.logical_and(*here)
        self._base = base_named(base, tags, self._studies(), columns.text("study", row))
        self._cuts = self._last_changes()
        self._farthest = {}  # {code of a past session: deviation of its farthest condition}

    def gate(self, allowed):
        columns, row = self._columns, self._rows[0]
        judged, judged_by = zip(*map(self._judge, self._rows), strict=True)
        used = set(itertools.chain(*judged_by))
        judged += tuple(self._missing(judged))
        dates = sorted(to_time(self._before.dates[at]) for at in used)
        return Gate(
            session=columns.text("session", row),
            study=columns.text("study", row),
            site=self._site,
            machine_id=self._machine_id,
            machine=columns.text("machine", row),
            started_at=to_time(columns.dates[self._rows].min()),
            base=self._base,
            base_first=dates[0] if dates else None,
            base_last=dates[-1] if dates else None,
            others=self._other_machines(),
            changed=self._changed(used),
            least=self._least,
            judged=tuple(sorted(self._corrected(judged), key=_importance)),
            allowed=allowed,
        )

    def _other_machines(self):
        """Where else this study was measured before, if never here."""
        before = self._before
        if self._here.any():
            return ()
        names = ("machine_id", "machine", "site")
        places = {
            "{} ({}) at {}".format(*(before.text(name, at) for name in names))
            for at in range(len(before.dates))
        }
        return tuple(sorted(places))

    def _studies(self):
        """{session: its study} of those before, of the same site and machine."""
        before = self._before
        _, rows = np.unique(before.codes["session"][self._here], return_index=True)
        rows = np.flatnonzero(self._here)[rows]
        return {before.text("session", row): before.text("study", row) for row in rows}

    def _last_changes(self):
        """{(condition_id, metric): start of the first session since its last confirmed change}."""
        found, before = analyse_history.History(), self._before
        if self._here.any():
            analyse_history.add_findings(found, before, [(self._site, self._machine_id)])
        dates = {row["finding"]: row["changed_before"] for row in found.findings}
        cuts = {}
        for row in found.changes:
            key, date = (row["condition_id"], row["metric"]), dates[row["finding"]]
            cuts[key] = max(date, cuts.get(key, date))
        return cuts

    def _earlier(self, row):
        """(measured rows before of the condition of a row, by date; whether others have its name).

        Those others have other data or own files. Where that is not recorded, as in early versions,
        it is taken to be the same.
        """
        columns, before = self._columns, self._before
        meaning, wanted = columns.text("meaning", row), self._here & (before.n > 0)
        for name in ("condition_id", "metric"):
            wanted = wanted & before.where(name, columns.text(name, row))
        rows = np.flatnonzero(wanted)
        same = [
            at for at in rows if "{}" in (meaning, m := before.text("meaning", at)) or m == meaning
        ]
        return sorted(same, key=lambda at: before.dates[at]), len(rows) > len(same)

    def _judge(self, row):
        """(Judged, rows before that it is judged by)."""
        columns, before = self._columns, self._before
        runs = int(columns.n[row])
        one = Judged(**columns.labels(row), runs=runs)
        if not runs:
            failed = columns.failed[row] > 0
            reason = "no run completed" if failed else "other programs disturbed all of its runs"
            return replace(one, verdict=FAILED if failed else DISTURBED, reason=reason), []
        one = replace(one, mean_log=float(columns.means[row]))
        earlier, has_others = self._earlier(row)
        if not earlier:
            other = "with its data and own files: what has its name before had others"
            where = other if has_others else "on this machine"
            return replace(one, verdict=NEW, reason=f"not measured before {where}"), []
        cut = self._cuts.get((one.condition_id, one.metric))
        base = [at for at in earlier if cut is None or to_time(before.dates[at]) >= cut]
        used = base
        if self._base == LAST:
            used = earlier[-1:]
        elif self._base != SINCE_CHANGE:
            used = [at for at in earlier if before.text("session", at) == self._base]
            if not used:
                reason = f"not measured in {self._base}"
                return replace(one, verdict=TOO_FEW, reason=reason), []
        one = replace(one, sessions=len(base))
        if len(base) < MIN_SESSIONS:
            since = "" if cut is None else " since its last change"
            reason = f"{len(base)} of {MIN_SESSIONS} sessions{since}"
            return replace(one, verdict=TOO_FEW, reason=reason), used
        variance = variance_of_repeats(before.scatters[base], before.n[base])
        means = change_points.without_outliers(before.means[base])
        for at, off in zip(base, past_deviations(before.means[base], means), strict=True):
            code = before.codes["session"][at]
            self._farthest[code] = max(off, self._farthest.get(code, off))
        level = None
        if used is not base:  # of before the last change it is as it was measured
            (at,) = used
            mean = means[base.index(at)] if at in base else before.means[at]
            level = float(mean), float(before.n[at])
        prediction = predict(means, before.n[base], variance, runs, level)
        return replace(one, prediction=prediction), used

    def _missing(self, judged):
        """What the last session of the same study measured, and this one did not."""
        before = self._before
        study = self._columns.text("study", self._rows[0])
        same = [at for at in np.flatnonzero(self._here) if before.text("study", at) == study]
        if not same:
            return
        last = before.codes["session"][max(same, key=lambda at: before.dates[at])]
        present = {(one.condition_id, one.metric) for one in judged}
        for at in same:
            labels = before.labels(at)
            known = (labels["condition_id"], labels["metric"]) in present
            if before.codes["session"][at] == last and before.n[at] > 0 and not known:
                reason = f"it was measured in {before.text('session', at)}, the last of this study"
                yield Judged(**labels, verdict=MISSING, reason=reason)

    def _corrected(self, judged):
        """With p adjusted for one another, and the verdicts that follow."""
        tested = [one for one in judged if one.prediction is not None]
        predictions = [one.prediction for one in tested]
        differences = [one.prediction.off(one.mean_log) for one in tested]
        least = exceeded(self._farthest.values(), predictions) if tested else 0.0
        results = iter(judge_differences(differences, self._least, least_runs=0))
        for one in judged:
            if one.prediction is not None:
                p, prediction = next(results).p_difference, replace(one.prediction, least=least)
                verdict, reason = self._verdict(one, prediction, p)
                one = replace(one, p=p, prediction=prediction, verdict=verdict, reason=reason)
            yield one

    def _verdict(self, one, prediction, p):
        """(verdict, reason)."""
        size = one.mean_log - prediction.level
        if p >= ALPHA or abs(size) <= -math.log1p(-self._least):
            return PASS, ""
        if abs(size) <= prediction.least * prediction.error:
            return PASS, "past sessions were as far off without a change"
        if one.better not in (HIGHER, LOWER):
            return CHANGED, ""
        return (BETTER if (size > 0) == (one.better == HIGHER) else WORSE), ""

    def _changed(self, used):
        """What differs in the fingerprints of conditions from the newest sessions of their bases.

        Conditions may have frameworks, and so environments, of their own.
        """
        before, columns = self._before, self._columns
        newest = {before.text("condition_id", at): at for at in sorted(used, key=before.dates.item)}
        pairs = {
            (before.text("facts", newest[condition]), columns.text("facts", row))
            for row in self._rows
            if (condition := columns.text("condition_id", row)) in newest
        }
        return tuple(cause.text for cause in causes.between(pairs))


def _importance(one):
    """Failures first, the largest change before the others."""
    size = abs(math.log(one.ratio)) if one.ratio else 0.0
    return VERDICTS.index(one.verdict), -size, one.condition, one.metric


def base_named(base: str, tags: Tags, studies: Mapping[str, str | None], study: str | None) -> str:
    """SINCE_CHANGE, LAST, or the name of the session that a base means.

    `studies`: {name of a session: its study} of those of the machine before the judged one, which
    is of `study`. Raises Error: there is no such tag or session, or a tag has none or several for
    this session.
    """
    if base in (SINCE_CHANGE, LAST):
        return base
    if base not in tags:
        if base in studies:
            return base
        known = f"one of {', '.join(tags)}" if tags else "none is in the config"
        raise Error(
            f"there is no tag {base!r}, nor a session of that name on this machine before this one"
            f"{did_you_mean(base, [*tags, *studies])}; expected {SINCE_CHANGE}, {LAST}, a tag of "
            f"the config ({known}), or a session, as results/history/campaigns.csv has them"
        )
    of_tag = tags[base]
    tagged = [of_tag] if isinstance(of_tag, str) else list(of_tag)
    here = [session for session in tagged if session in studies]
    same = [session for session in here if studies[session] == study] or here
    if len(same) == 1:
        return same[0]
    if same:
        raise Error(
            f"tag {base}: {', '.join(same)} are all of study {study} on this machine; expected one "
            "of each machine and study: leave the others out"
        )
    raise Error(
        f"tag {base}: none of its sessions ({', '.join(tagged)}) is in the history, on the machine "
        "of the judged session and before it. Is the tag of another machine, or the session "
        "withdrawn or not added yet?"
    )


def predict(
    means: np.ndarray,
    counts: np.ndarray,
    variance: float,
    new_count: int,
    of_one: tuple[float, float] | None,
) -> Prediction:
    """Predict the mean of a new session of `new_count` runs from those of others.

    Args:
        means: of logarithms, one a session (at least two); `counts`: of their runs.
        variance: of the logarithms of repeats; nan: not known.
        of_one: (mean, runs) of the session that is the level, which may be an older one; None: the
            level is the mean of all.
    """
    count = len(means)
    scatter = float(np.var(means, ddof=1))
    usual = float(np.mean(1 / counts))

    def of_session(runs):
        """The variance of the mean of a session with so many runs."""
        if math.isnan(variance):
            return scatter
        return max(scatter + variance * (1 / runs - usual), variance / runs)

    if of_one is None:
        level, of_level = float(np.mean(means)), scatter / count
    else:
        level, of_level = of_one[0], of_session(of_one[1])
    error = math.sqrt(of_session(new_count) + of_level)
    return Prediction(level, max(error, RESOLUTION), count - 1)


def past_deviations(means: np.ndarray, clipped: np.ndarray) -> np.ndarray:
    """How many errors each session was off what the others predict; these without outliers."""
    others, centre = len(means) - 1, clipped.mean()
    level = (centre - clipped) / others  # of the others, from the centre of all
    squares = np.square(clipped - centre)
    variances = (squares.sum() - squares - others * level**2) / (others - 1)
    errors = np.sqrt(np.maximum(variances, 0.0) * (1 + 1 / others))
    return abs(means - centre - level) / np.maximum(errors, RESOLUTION)


def exceeded(farthest: Iterable[float], predictions: Sequence[Prediction]) -> float:
    """What at most ALPHA of past sessions were beyond, by the farthest condition of each.

    If all but one are as these predictions of conditions have it, that one had a cause of its own.
    """
    ordered = sorted(farthest)
    freedom = min(one.freedom for one in predictions)
    usual = special.stdtrit(freedom, 1 - ALPHA / 2 / len(predictions) / len(ordered))
    if ordered[-2] <= usual:
        return ordered[-2]
    return ordered[-max(1, int(ALPHA * (len(ordered) + 1)))]


def variance_of_repeats(scatters: np.ndarray, counts: np.ndarray) -> float:
    """The variance of repeats, pooled over sessions; nan if each has one run.

    `scatters`: standard deviations of logarithms, one a session; `counts`: of their runs.
    """
    freedom = np.where(np.isfinite(scatters), counts - 1, 0.0)
    squares = np.square(np.nan_to_num(scatters))
    return float(freedom @ squares / freedom.sum()) if freedom.sum() > 0 else math.nan


NOT_JUDGED = (TOO_FEW, NEW)
KINDS = {BETTER: "good", PASS: "same", **dict.fromkeys(NOT_JUDGED, "open")}
KINDS |= dict.fromkeys(FAILING, "bad")


def page(judged: Gate) -> Page:
    """The Page of a judged session."""
    words = {True: "passed", False: "failed", None: "nothing could be judged"}
    passed = _passed(judged)
    return Page(
        title=f"Session {judged.session}: {words[passed]}",
        lead=lead(judged),
        sections=(_facts(judged), _conditions(judged)),
        kind={True: "good", False: "bad", None: "open"}[passed],
    )


def _passed(judged):
    """Whether the gate is passed; None if nothing fails it and nothing could be judged."""
    is_open = judged.passed and not any(one.prediction for one in judged.judged)
    return None if is_open else judged.passed


def lead(judged: Gate) -> str:
    """The outcome in a sentence or two."""
    counts = judged.counts
    verdicts = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
    text = f"{phrases.counted(len(judged.judged), 'condition')} of {judged.site}: {verdicts}."
    if judged.others:
        text += (
            f" The history has no session of this machine, {judged.machine_id} "
            f"({judged.machine}), but of {'; '.join(judged.others)}. If that is the same "
            "machine, name both keys under `machines` in the config."
        )
    return text


def values(judged: Gate) -> dict[str, Any]:
    """A judged session as plain values; what is not known is None."""
    names = ("session", "study", "site", "machine_id", "machine")
    return {
        **{name: getattr(judged, name) for name in names},
        "started_at": _utc(judged.started_at),
        "passed": _passed(judged),
        "base": judged.base,
        "tag": judged.tag or None,
        "base_first": _utc(judged.base_first),
        "base_last": _utc(judged.base_last),
        "base_age_days": judged.age_days,
        "changed": list(judged.changed),
        "least": judged.least,
        "allowed": list(judged.allowed),
        "power": {f"{size:g}": _power(judged, size) for size in SIZES},
        "conditions": [_condition(one, judged) for one in judged.judged],
    }


def _facts(judged):
    rows: list[list[str | Cell]] = [
        ["session", f"{judged.session}, {day(judged.started_at)}"],
        ["study", judged.study or "without a name"],
        ["machine", f"{judged.machine_id} at {judged.site}: {judged.machine}"],
        ["judged by", _base(judged)],
    ]
    if judged.base_last is not None:
        changed = "; ".join(judged.changed) or "nothing that is recorded"
        rows.append(["changed since then", changed])
    if any(one.prediction for one in judged.judged):
        powers = ", ".join(f"{100 * s:g} %: {100 * _power(judged, s):.0f} %" for s in SIZES)
        rows.append(["chance to find a loss in one condition", f"{powers} (the median of them)"])
    if judged.refused:
        rows.append(["left out", "; ".join(judged.refused)])
    if judged.allowed:
        rows.append(["fails nothing", ", ".join(judged.allowed)])
    return Section("What was judged", (), Table(("", ""), rows))


def _base(judged):
    if judged.base_last is None:
        return "nothing: the history has no session before it on this machine"
    age = f"{phrases.counted(round(judged.age_days), 'day')} old"
    if judged.base == SINCE_CHANGE:
        first, last = day(judged.base_first), day(judged.base_last)
        return f"the sessions since the last change, {first} to {last}; the newest is {age}"
    names = {LAST: "the session before it"}
    name = f"{judged.tag} ({judged.base})" if judged.tag else names.get(judged.base, judged.base)
    return f"{name} of {day(judged.base_last)}, {age}"


def _conditions(judged):
    family = sum(one.prediction is not None for one in judged.judged)
    method = (
        "Expected: level of the base, and in parentheses the 95 % prediction interval of a "
        "session's mean, of each condition alone. Verdicts are at the 5 % level after Holm's "
        f"correction for {phrases.counted(family, 'condition')}; a change below "
        f"{100 * judged.least:g} % fails nothing."
    )
    metrics = {one.metric for one in judged.judged}
    rows = [
        [
            one.condition if len(metrics) == 1 else f"{one.condition}: {one.metric}",
            _expected(one),
            _measured(one),
            _ratio(one, judged.least),
            Cell(one.verdict, KINDS[one.verdict], one.reason),
        ]
        for one in judged.judged
    ]
    headings = ("condition", "expected", "measured (runs)", "ratio", "verdict")
    heading = f"Conditions, {min(metrics)}" if len(metrics) == 1 else "Conditions"
    return Section(heading, (method,), Table(headings, rows, right=(1, 2, 3)))


def _expected(one):
    if one.prediction is None:
        return "-"
    expected = one.prediction.expected
    numbers = expected.value, expected.low, expected.high
    return "{} ({} to {})".format(*map(wording.number, numbers))


def _measured(one):
    if one.mean_log is None:
        return "-"
    return f"{wording.number(math.exp(one.mean_log))} {one.unit} ({one.runs})".replace("  ", " ")


def _ratio(one, least):
    if one.ratio is None:
        return "-"
    # Of the ratio itself: what was measured, as sure as the prediction is.
    expected = one.prediction.expected
    low, high = (one.ratio * end / expected.value for end in (expected.low, expected.high))
    return Cell(f"{one.ratio:.3f}", drawn=(one.ratio, low, high, least))


def _power(judged, size):
    """The chance that a loss of a size in one condition would fail; None if nothing is judged."""
    tested = [one.prediction for one in judged.judged if one.prediction]
    if not tested:
        return None
    powers = [prediction.power(size, judged.least, len(tested)) for prediction in tested]
    return float(np.median(powers))


def _condition(one: Judged, judged: Gate):
    expected = one.prediction and one.prediction.expected
    return {
        **{name: getattr(one, name) for name in (*LABELS, "verdict")},
        "fails": one in judged.failures,
        "reason": one.reason,
        "runs": one.runs,
        "value": None if one.mean_log is None else math.exp(one.mean_log),
        "sessions": one.sessions,
        "expected": expected and expected.value,
        "prediction95_low": expected and expected.low,
        "prediction95_high": expected and expected.high,
        "ratio": one.ratio,
        "p": one.p,
    }


def _utc(date):
    return date and f"{date.isoformat()}Z"
