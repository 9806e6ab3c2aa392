"""Judge a session of a history by the sessions before it: the gate of upgrades and of CI.

- The base of a condition are the sessions of the same site and machine since its last confirmed
  change, as analyse_history.py finds it in what was known before; or one session that is named,
  also an earlier one. The scatter is that of the sessions since the change.
- A session is judged by the interval of prediction.py. All of its conditions are one family (Holm),
  so that at most 5 % of whole sessions without a change fail. A change below the least size fails
  nothing.
- Nothing fails that is no farther off, in its errors, than past sessions were, each by its farthest
  condition: one of 20 may have been, of fewer sessions none. Tails that are heavier than those of
  the interval show there.
- For the level and the scatter outliers count as there: as if they lay just so far off.
- Below MIN_SESSIONS the scatter between sessions is not known well enough, and nothing is judged.
- A condition that failed, or that the last session of the same study had and this one has not,
  fails.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from dlbench import Error
from dlbench.analysis import equivalence
from dlbench.common.phrases import did_you_mean
from dlbench.history import analyse_history, bases, causes, change_points, dataset, machines
from dlbench.history.bases import LAST, SINCE_CHANGE
from dlbench.history.history_rows import HistoryRows, to_time
from dlbench.history.prediction import (
    ALPHA,
    Prediction,
    exceeded,
    past_deviations,
    predict,
    variance_of_repeats,
)
from dlbench.log.metrics import HIGHER, LOWER

MIN_SESSIONS = 8
LEAST = 0.01  # a smaller change fails nothing
PASS, WORSE, BETTER, CHANGED = "pass", "worse", "better", "changed"
FAILED, MISSING, DISTURBED = "failed", "missing", "disturbed"
TOO_FEW, NEW = "too little data", "new"
FAILING = (WORSE, CHANGED, FAILED, MISSING, DISTURBED)
VERDICTS = (*FAILING, BETTER, TOO_FEW, NEW, PASS)  # in the order in which they are shown


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
        failing = [verdict for verdict in FAILING if verdict not in self.allowed]
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
    tags: bases.Tags | None = None,
) -> Gate:
    """Judge a session of a history.

    Args:
        names_of_machines: `machines` of a config.
        session: its name; None: the newest.
        base: SINCE_CHANGE, LAST (the session before), a tag, or the name of a session.
        tags: `tags` of a config.

    Raises:
        Error: the history is empty, or has no session of that name, or no such tag.
    """
    names = machines.named(names_of_machines)
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
    known = columns.texts["session"]
    if session is None:
        code = columns.codes["session"][np.argmax(columns.dates)]
    elif session in known:
        code = known.index(session)
    else:
        raise Error(f"{folder}: it has no session {session!r}{did_you_mean(session, known)}")
    rows = np.flatnonzero(columns.codes["session"] == code)
    sites = sorted({columns.text("site", row) for row in rows})
    if len(sites) > 1:
        raise Error(f"session {known[code]} is of several sites: {', '.join(sites)}")
    return rows


class _Judge:
    """Judges the rows of one session by those before it."""

    def __init__(self, columns, rows, before, base, least, tags):
        self._columns, self._rows, self._before, self._least = columns, rows, before, least
        row = rows[0]
        self._site = columns.text("site", row)
        self._machine_id = columns.distinct_machines[columns.machine[row]]
        self._here = _equal(before.texts["site"], before.codes["site"], self._site) & _equal(
            before.distinct_machines, before.machine, self._machine_id
        )
        self._base = bases.named(base, tags, self._studies(), columns.text("study", row))
        self._cuts = self._last_changes()
        self._farthest = {}  # {code of a past session: deviation of its farthest condition}

    def gate(self, allowed):
        columns, row = self._columns, self._rows[0]
        judged, used = [], set()
        for row_of_session in self._rows:
            one, judged_by = self._judge(row_of_session)
            judged.append(one)
            used.update(judged_by)
        judged += self._missing(judged)
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
        places = {
            f"{before.distinct_machines[code]} ({before.text('machine', at)}) at "
            f"{before.text('site', at)}"
            for at, code in enumerate(before.machine)
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
        if (rows := np.flatnonzero(self._here)).size:
            place = before.codes["site"][rows[0]], before.machine[rows[0]]
            analyse_history.add_findings(found, before, [place])
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
        codes = []
        for name in ("condition_id", "metric"):
            value = columns.text(name, row)
            codes.append(before.texts[name].index(value) if value in before.texts[name] else -1)
        meaning = columns.text("meaning", row)
        rows = np.flatnonzero(
            self._here
            & (before.codes["condition_id"] == codes[0])
            & (before.codes["metric"] == codes[1])
            & (before.n > 0)
        )
        same = [
            at for at in rows if "{}" in (meaning, m := before.text("meaning", at)) or m == meaning
        ]
        return sorted(same, key=lambda at: before.dates[at]), len(rows) > len(same)

    def _judge(self, row):
        """(Judged, rows before that it is judged by)."""
        columns, before = self._columns, self._before
        runs = int(columns.n[row])
        one = Judged(**_labels(columns, row), runs=runs)
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
        if self._base != SINCE_CHANGE:
            used = self._rows_of_base(earlier)
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
        return replace(one, prediction=prediction, p=prediction.p(one.mean_log)), used

    def _rows_of_base(self, rows):
        """Those of rows that are of the session before, or of the one that is named."""
        if self._base == LAST:
            return rows[-1:]
        return [row for row in rows if self._before.text("session", row) == self._base]

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
            labels = _labels(before, at)
            known = (labels["condition_id"], labels["metric"]) in present
            if before.codes["session"][at] == last and before.n[at] > 0 and not known:
                reason = f"it was measured in {before.text('session', at)}, the last of this study"
                yield Judged(**labels, verdict=MISSING, reason=reason)

    def _corrected(self, judged):
        """With p adjusted for one another, and the verdicts that follow."""
        tested = [one for one in judged if one.p is not None]
        adjusted = dict(
            zip(map(id, tested), equivalence.holm([one.p for one in tested]), strict=True)
        )
        predictions = [one.prediction for one in tested]
        least = exceeded(self._farthest.values(), predictions) if tested else 0.0
        for one in judged:
            if (p := adjusted.get(id(one))) is not None:
                prediction = replace(one.prediction, least=least)
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


def _equal(texts, codes, text):
    """Where the text of a code is a given one."""
    return codes == (texts.index(text) if text in texts else -2)


def _labels(columns, row):
    """The names of the condition of a row, as fields of Judged."""
    names = ("condition_id", "condition", "metric", "unit", "better")
    return {name: columns.text(name, row) or "" for name in names}


def _importance(one):
    """Failures first, the largest change before the others."""
    size = abs(math.log(one.ratio)) if one.ratio else 0.0
    return VERDICTS.index(one.verdict), -size, one.condition, one.metric
