"""The report of status.py as lines of text."""

import textwrap
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from dlbench.common import phrases, terminal
from dlbench.log import event_fields
from dlbench.log.event_fields import SUCCEEDED
from dlbench.log.event_log import FAILED
from dlbench.plan.standing import LEFT
from dlbench.records import costs, sessions

MAX_SHOWN = 8  # reasons and running runs on the screen
WIDTH = 88  # of wrapped text, without its indentation


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report of `status.report`; counts of 0 are left out."""
    counts = report["combinations"]
    yield f"{report['study']} on {report['site']}: {phrases.counted(counts['total'], 'run')}"
    yield ""
    done, failed = (sum(counts[state] for state in states) for states in (SUCCEEDED, FAILED))
    yield _count("done", done, _split(counts, SUCCEEDED) if counts["unstable"] else "")
    for state in ("running", "pending", "interrupted", "stale", "unread"):
        if counts[state]:
            yield _count(state, counts[state], "")
    if failed:
        yield _count("failed", failed, _split(counts, FAILED))
    for state in ("skipped", "excluded"):
        if counts[state]:
            yield _count(state, counts[state], "")
    if report["running"]:
        yield from ("", "running")
        for run in report["running"][:MAX_SHOWN]:
            yield f"  {run['label']}"
            yield f"    {_describe_progress(run)}"
        yield from _more(report["running"])
    if report["reasons"]:
        yield from ("", "why")
        for reason in report["reasons"][:MAX_SHOWN]:
            why = terminal.message(reason["message"], 200)
            yield f"{reason['runs']:7d}  {reason['state']:<11}  {why}"
        yield from _more(report["reasons"])
    if report["largest_batches"]:
        yield from ("", "largest batches that fit (max)")
        for search in report["largest_batches"]:
            reason = search["reason"] or _describe_tries(search["tries"])
            yield f"{search['batch_per_device'] or search['state']:>9}  {search['label']}"
            yield f"           {terminal.message(reason, 200)}"
    yield ""
    yield from _cost_lines(report["cost"], any(counts[state] for state in LEFT))
    over = report["sessions"]
    if over["number"] > 1 or over["sentinels"]:
        text = sessions.describe(over["number"], over["sentinels"], over["verdicts"])
        yield f"  sessions  {text}"
    if report["runs"]:
        yield ""
        for run in report["runs"]:
            message = f": {run['message']}" if run["message"] else ""
            yield f"{run['state']:<11}  {duration(run['duration_s']):>8}  {run['label']}{message}"


def duration(seconds: float) -> str:
    """A duration in at most two units.

    >>> [duration(s) for s in (0, 59, 60, 3700, 200_000)]
    ['0 s', '59 s', '1 min', '1 h 2 min', '2 d 8 h']
    """
    minutes = round(seconds / 60)
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def _describe_tries(tries):
    """A phrase on the tries of an unfinished search."""
    if tries:
        return f"{tries} tried so far; the next start goes on"
    return "the next start finds it before it trains the runs"


def _count(name, number, detail):
    return f"  {name:<11}  {number:6d}   {detail}".rstrip()


def _split(counts, states):
    return ", ".join(f"{state} {counts[state]}" for state in states if counts[state])


def _more(entries):
    if len(entries) > MAX_SHOWN:
        yield f"  and {len(entries) - MAX_SHOWN} more; --json has them all"


def _describe_progress(run):
    text = "no step yet"
    if run["step"] is not None:
        text = f"step {run['step']}/{run['total_steps']}"
    if run["rate"]:
        text += f", {run['rate']}"
    text += f", for {duration(run['elapsed_s'])}"
    text += f", {run['message']}" if run["message"] else ""
    return text if run["left_s"] is None else f"{text}, {duration(run['left_s'])} left"


def _cost_lines(cost, any_left):
    aside = cost["aside_node_hours"]
    aside_text = f", of which {costs.node_hours(aside)} in attempts kept aside" if aside else ""
    yield f"  used  {costs.node_hours(cost['used_node_hours'])}{aside_text}"
    if not any_left:
        return
    if cost["left_s"] is None:
        yield "  left  unknown: no run of this study is completed yet"
        return
    done_at = datetime.strptime(cost["done_at"], event_fields.UTC_FORMAT)
    done_at = done_at.replace(tzinfo=timezone.utc).astimezone()
    order_text = f"{cost['at_a_time']} at a time" if cost["at_a_time"] > 1 else "sequentially"
    yield (
        f"  left  about {costs.node_hours(cost['left_node_hours'])}; {order_text} "
        f"{duration(cost['left_wall_s'])}, until {done_at:%a %d %b %H:%M}"
    )
    bases = textwrap.wrap(costs.describe_bases(cost["estimates"]), WIDTH)
    yield from (f"        {line}" for line in bases)
