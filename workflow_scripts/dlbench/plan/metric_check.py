"""Check that metrics in a config are named by the programs of its runs, where that is known.

Patterns of logs name their metrics. What dlbench_log.py, an importer or `auto` finds is known only
once a program has run; a misspelt name is then reported where the metric is used.
"""

from collections.abc import Iterable, Mapping

import yaml

from dlbench import Error
from dlbench.common.phrases import did_you_mean
from dlbench.study import learning_gates, log_patterns, other_trainers, repeats
from dlbench.study.config import Study
from dlbench.study.runs import Run


def check(study: Study) -> None:
    """Check the metrics that are compared, that decide repeats, and that runs must reach.

    Raises:
        Error: no program that uses patterns names one.
    """
    if not study.imports:  # imported logs may have any
        named = _named(study.runs)
        for index, entry in enumerate(study.compare):
            if "metric" in entry:
                _check(entry["metric"], named, f"compare[{index}].metric")
    repeated = {
        (run.trainer, study.targets[run.id].metric): run
        for run in study.runs
        if run.id in study.targets
    }
    for (_, name), run in repeated.items():
        _check(name, _named([run]), "repeats.metric")
    reached = {
        (run.trainer, name): run
        for run in study.runs
        for name in study.must_reach.get(run.id, {}).get(learning_gates.METRICS, {})
    }
    for (_, name), run in reached.items():
        _check(name, _named([run]), "must_reach.metrics", is_column=False)


def _named(runs: Iterable[Run]) -> set[str] | None:
    """The metrics that programs of runs name; None if that is not known."""
    names: set[str] = set()
    for run in {run.trainer: run for run in runs if run.is_external}.values():
        log = other_trainers.trainer(run)["log"]
        if log in log_patterns.names():
            log = yaml.safe_load(log_patterns.path(log).read_text(encoding="utf-8"))
        if not isinstance(log, Mapping):
            return None
        names |= log.get("metrics", {}).keys()
    return names


def _check(name, named, where, is_column=True):
    """Refuse a metric that no program names and, where it may be one, that is no column."""
    if named is None or name in named or name == repeats.THROUGHPUT:
        return
    from dlbench.tables.metrics import METRICS  # late: few studies name metrics

    columns = METRICS if is_column else ()
    if name in columns:
        return
    of_table = ", or a column of the table runs" if columns else ""
    raise Error(
        f"{where}: no pattern of a log names a metric {name!r}"
        f"{did_you_mean(name, [*sorted(named), *columns])}; expected one of those under metrics, "
        f"which are: {', '.join(sorted(named)) or 'none'}{of_table}"
    )
