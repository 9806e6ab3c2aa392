"""`batch_per_device: max` in a block: for which combinations the largest batch is found, and where.

- A search stands for all combinations that take the same memory: they agree in all fields that
  change it, and evaluate or do not. So repeats, and rates of learning, have one batch.
- What was found lies in results/batches/{search}/found.json, with the tries beside it, and stays
  until somebody forgets it (forget_runs.py): code that changes trains runs again, with the batch
  that they have.
"""

import dataclasses
import functools
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import launchers
from dlbench.common import files, options, plugins
from dlbench.log import event_log
from dlbench.run_fields.fields import DECLARED
from dlbench.study import matrix
from dlbench.study.config_schema import ConfigError
from dlbench.study.runs import Run
from dlbench.trainer.reading import inputs

MAX = "max"
FOLDER, RESULT_FILE = Path("results/batches"), "found.json"
STEPS, WARMUP_STEPS = 3, 1  # of a try: the second step has all that a later one has
NOT_YET = "its largest batch is not found yet; the next start, or `snakemake batches`, finds it"


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        batch: items of a device; None if there is none.
        reason: why no larger one is taken, or none at all.
        skipped: whether nothing was tried, since the machine could not do it.
        tries: each batch that was tried, as dlbench/starting/find_batch.py writes it.
    """

    batch: int | None
    reason: str
    skipped: bool = False
    tries: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Search:
    """The search for the largest batch of some combinations; `run` is its try of the least one."""

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
        """The file that says what was found."""
        return self.folder / RESULT_FILE

    @property
    def unit(self) -> int:
        """What the batch is a multiple of: the parts in which a device computes it."""
        return self.run.accumulate_steps

    def attempt(self, batch: int) -> Run:
        """The run that tries a batch."""
        return dataclasses.replace(self.run, batch_per_device=batch)

    def label(self) -> str:
        """One line for people."""
        words = self.attempt(0).label().replace(" batch 0,", ",").removesuffix(", repeat 1")
        return f"largest batch of {words}"


class Batches:
    """The searches that a config asks for, and what they found.

    Attributes:
        searches: {id: Search}.
        results: {id: SearchResult} of those that are done.
        least: of each combination that asks for one its run with the least batch.
    """

    def __init__(self, images: dict[str, Any]) -> None:
        self.searches: dict[str, Search] = {}
        self.results: dict[str, SearchResult] = {}
        self.least: list[Run] = []
        self._images = images

    def find(self, combination: dict[str, Any], where: str) -> tuple[Search, SearchResult]:
        """The search for the largest batch of a combination, and what is known of that.

        Raises:
            ConfigError: such a combination cannot be, or its largest batch cannot be found.
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
        """Why the searches found nothing, and what to do; "" if there is none that did not."""
        failed = {key: one.reason for key, one in self.results.items() if one.batch is None}
        if not failed:
            return ""
        reasons = "; ".join(dict.fromkeys(failed.values()))
        return f"{reasons}; to search again: forget_runs.py {' '.join(sorted(failed))}"


def search_for(run: Run) -> Search:
    """The search for the largest batch of a run, whose own batch does not matter."""
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
    """The options of the runtime for tries: Snakemake's directive enters an image once for each
    job, and a search is one job with many tries.
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
    if run.mode == inputs.ALONE:
        return "mode input has no model, whose memory the batch would fill"
    if launchers.starts_elsewhere(run.launcher):
        return f"launcher {run.launcher} starts runs elsewhere, where nobody sees their memory"
    return None


def read_result(search_id: str) -> SearchResult | None:
    """What was found; None as long as nothing is, or its file does not say what."""
    content = files.read_json(FOLDER / search_id / RESULT_FILE)
    if content is None or content.get("search") != search_id:
        return None
    batch, reason, tries = (content.get(key) for key in ("batch_per_device", "reason", "tries"))
    right_batch = batch is None or (type(batch) is int and batch >= 1)
    if not (right_batch and isinstance(reason, str) and reason and _are_valid_tries(tries)):
        return None
    return SearchResult(batch, reason, content.get("skipped") is True, tuple(tries or ()))


def failed_searches(statuses: Container[str], text: str = "") -> list[str]:
    """The ids of all searches in the results that found no batch, by how their last try ended.

    Args:
        statuses: of that try; where it ended well but took too much of the memory, or is not
            listed since it failed, `failed`.
        text: that the reason must have in it, in capitals or not.
    """
    ids = []
    for path in sorted(FOLDER.glob(f"*/{RESULT_FILE}")):
        one = read_result(path.parent.name)
        if one is None or one.batch is not None or one.skipped:
            continue  # the next start searches again, or there is a batch
        status = one.tries[-1]["status"] if one.tries else "failed"
        status = status if status in event_log.FAILED else "failed"
        if status in statuses and text.lower() in one.reason.lower():
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
