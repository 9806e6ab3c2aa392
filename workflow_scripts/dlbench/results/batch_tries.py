"""The table of tries: one row for each batch that the searches of a study tried."""

from collections.abc import Iterator

from dlbench.common import files
from dlbench.study.config import Study
from dlbench.study.runs import FIELDS
from dlbench.tables.cells import Row
from dlbench.tables.try_columns import TRIES

_OF_RUN = tuple(name for name in FIELDS if name in TRIES.names)


def rows(study: Study) -> Iterator[Row]:
    """The rows, in the order of the searches' ids and of the tries."""
    for search_id, result in sorted(study.search_results.items()):
        search = study.searches[search_id]
        search_file = files.read_json(search.output) or {}
        common = {name: getattr(search.run, name) for name in _OF_RUN} | {
            "study": study.name,
            "site": study.site["name"],
            "search": search_id,
            "node_memory_bytes": search_file.get("node_memory_bytes"),
            "found_batch_per_device": result.batch,
            "reason": result.reason,
            "host": search_file.get("host"),
        }
        for batch_try in result.tries:
            yield common | {name: batch_try[name] for name in TRIES.names if name in batch_try}
