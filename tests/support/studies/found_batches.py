"""Results of searches for the largest batch, written without a search."""

from dlbench.common import files
from dlbench.study import batch_searches

TRIES = [
    {"batch_per_device": 1, "fits": True, "status": "ok", "message": "holds 20 % of it"}
    | {"share_of_memory": 0.2, "peak_memory_bytes": 200},
    {"batch_per_device": 2, "fits": False, "status": "oom", "message": "batch 2: no memory"}
    | {"share_of_memory": None, "peak_memory_bytes": None},
]


def write_found(search_id, **changes):
    """Write found.json of a search, which found 48 unless `changes` say otherwise."""
    content = {"search": search_id, "batch_per_device": 48, "reason": "49 is too many", "tries": []}
    path = batch_searches.FOLDER / search_id / batch_searches.RESULT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, content | changes)
    return path
