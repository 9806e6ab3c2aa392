"""Files of searches for largest batches that cannot be read."""

import functools
from collections.abc import Iterator

from dlbench.campaign.doctor_problem import Problem, put_aside
from dlbench.study import batch_searches


def problems() -> Iterator[Problem]:
    """Yield a Problem for each found.json with neither a batch nor a reason that there is none."""
    for path in sorted(batch_searches.FOLDER.glob(f"*/{batch_searches.RESULT_FILE}")):
        if batch_searches.read_result(path.parent.name) is None:
            yield Problem(
                "largest batch",
                str(path),
                "it does not say what the search of its folder found",
                "its runs are not known, so that none of them is trained or in a table",
                "the next start searches again and keeps valid tries; --repair moves it aside",
                functools.partial(put_aside, path),
            )
