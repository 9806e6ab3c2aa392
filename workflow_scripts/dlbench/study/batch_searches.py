"""Searches for the largest batch, for blocks with `batch_per_device: max`, and their results.

- Combinations that need the same memory share a search: they agree in all fields that change it,
  and in whether they evaluate. So repeats and learning rates have one batch.
- A result is results/batches/{search}/found.json, with the tries beside it. It stays until somebody
  forgets it (`dlbench forget`): when code changes, runs are trained again with the batch they have.
"""

import dataclasses
import functools
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.common import files, options, plugins
from dlbench.common.run_fields import DECLARED
from dlbench.log import event_log
from dlbench.study import launching, matrix
from dlbench.study.config_schema import ConfigError
from dlbench.study.runs import Run
from dlbench.trainer.reading import inputs

MAX = "max"
FOLDER, RESULT_FILE = Path("results/batches"), "found.json"
STEPS, WARMUP_STEPS = 3, 1  # of a try: the second step has all that a later one has
NOT_YET = "its largest batch is not found yet; the next start, or `snakemake batches`, finds it"


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        batch: items per device; None if no batch fits.
        reason: why no larger batch was taken, or none at all.
        skipped: whether the machine could not do the search, so that nothing was tried.
        tries: each batch that was tried, as dlbench/starting/find_batch.py writes it.
    """

    batch: int | None
    reason: str
    skipped: bool = False
    tries: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Search:
    """The search for the largest batch of some combinations; `run` tries the smallest batch."""

    run: Run

    @functools.cached_property
    def id(self) -> str:
        run = self.run
        values = {k: v for k, v in run.values().items() if DECLARED[k].changes_memory}
        digest = files.json_digest(values | {"evaluate": run.evaluate})[:10]
        layout = f"{run.nodes}x{run.devices_per_node}"
        return "-".join(["max", run.model, run.dataset, run.strategy, layout, digest])

    @property
    def folder(self) -> Path:
        return FOLDER / self.id

    @property
    def output(self) -> Path:
        """The file with the result."""
        return self.folder / RESULT_FILE

    @property
    def unit(self) -> int:
        """The batch is a multiple of this: a device accumulates gradients over so many parts."""
        return self.run.accumulate_steps

    def attempt(self, batch: int) -> Run:
        """The run that tries a batch."""
        return dataclasses.replace(self.run, batch_per_device=batch)

    def label(self) -> str:
        """One line for people."""
        label = self.attempt(0).label().replace(" batch 0,", ",").removesuffix(", repeat 1")
        return f"largest batch of {label}"


class Batches:
    """The searches that a config needs, and their results.

    Attributes:
        searches: {id: Search}.
        results: {id: SearchResult} of the finished searches.
        least: the run with the smallest batch of each combination that has batch_per_device: max.
    """

    def __init__(self, images: dict[str, Any]) -> None:
        self.searches: dict[str, Search] = {}
        self.results: dict[str, SearchResult] = {}
        self.least: list[Run] = []
        self._images = images

    def find(self, combination: dict[str, Any], where: str) -> tuple[Search, SearchResult]:
        """The search for the largest batch of a combination, and its result so far.

        Raises ConfigError: the combination is invalid, or its largest batch cannot be found.
        """
        least = {**combination, "batch_per_device": combination.get("accumulate_steps", 1)}
        run = matrix.run_from_values(least, where, self._images)
        if reason := unsupported(run):
            raise ConfigError(f"{where}.batch_per_device: max cannot be found: {reason}")
        search = search_for(run)
        if search.id not in self.searches:
            self.searches[search.id] = search
            if known := read_result(search.id):
                self.results[search.id] = known
        self.least.append(run)
        return search, self.results.get(search.id, SearchResult(None, NOT_YET))

    @property
    def may_find(self) -> bool:
        """Whether a search may still find a batch."""
        known = self.results
        return any(key not in known or known[key].skipped for key in self.searches)

    @property
    def none_fits(self) -> str:
        """Why searches failed and what to do about it; "" if none failed."""
        failed = {key: r.reason for key, r in self.results.items() if r.batch is None}
        if not failed:
            return ""
        reasons = "; ".join(dict.fromkeys(failed.values()))
        return f"{reasons}; to search again: dlbench forget {' '.join(sorted(failed))}"


def search_for(run: Run) -> Search:
    """The search for the largest batch of a run; the run's batch does not matter."""
    evaluates = run.evaluate == "yes" or bool(run.evaluate == "auto" and run.epochs)
    same = {k: v for k, v in run.values().items() if DECLARED[k].changes_memory}
    return Search(
        Run(
            **same,
            runtime_options=_entered_by_command(run),
            steps=STEPS,
            warmup_steps=WARMUP_STEPS,
            evaluate="yes" if evaluates else "no",
            batch_per_device=run.accumulate_steps,
        )
    )


def _entered_by_command(run):
    """The runtime's options for tries. Snakemake's container directive enters an image once for
    each job, and a search is one job with many tries, so each try enters it by command.
    """
    known = plugins.constants("runtimes", run.runtime)["OPTIONS"]
    if "start" not in known:
        return run.runtime_options
    chosen = options.parse("runtime", run.runtime, known, run.runtime_options)
    return options.canonical_text("runtime", run.runtime, known, {**chosen, "start": "command"})


def unsupported(run: Run) -> str | None:
    """Why the largest batch of a run cannot be found, or None."""
    if run.is_external:
        return f"trainer {run.trainer} is another program, whose memory is not counted"
    if run.mode == inputs.INPUT_ONLY:
        return "mode input has no model, whose memory the batch would fill"
    if launching.starts_elsewhere(run.launcher):
        return f"launcher {run.launcher} starts runs elsewhere, where nobody sees their memory"
    return None


def read_result(search_id: str) -> SearchResult | None:
    """Read the result of a search; None if its file is missing or invalid."""
    content = files.read_json(FOLDER / search_id / RESULT_FILE)
    if content is None or content.get("search") != search_id:
        return None
    batch, reason, tries = (content.get(key) for key in ("batch_per_device", "reason", "tries"))
    is_valid_batch = batch is None or (type(batch) is int and batch >= 1)
    if not (is_valid_batch and isinstance(reason, str) and reason and _are_valid_tries(tries)):
        return None
    return SearchResult(batch, reason, content.get("skipped") is True, tuple(tries or ()))


def failed_searches(statuses: Container[str], text: str = "") -> list[str]:
    """The ids of all searches that found no batch and whose last try has one of these statuses.

    Args:
        statuses: `failed` also selects searches whose last try completed but took too much
            memory, and those without a listed try.
        text: must occur in the reason, in capitals or not.
    """
    ids = []
    for path in sorted(FOLDER.glob(f"*/{RESULT_FILE}")):
        result = read_result(path.parent.name)
        if result is None or result.batch is not None or result.skipped:
            continue  # the next start searches again, or there is a batch
        status = result.tries[-1]["status"] if result.tries else "failed"
        status = status if status in event_log.FAILED else "failed"
        if status in statuses and text.lower() in result.reason.lower():
            ids.append(path.parent.name)
    return ids


def _are_valid_tries(entries):
    """Whether all entries are tries as dlbench/starting/find_batch.py writes them."""
    kinds = {"batch_per_device": int, "fits": bool, "status": str, "message": str}
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and all(type(entry.get(name)) is kind for name, kind in kinds.items())
        and all(isinstance(entry[name], int | float | None) for name in entry.keys() - kinds)
        for entry in entries
    )
