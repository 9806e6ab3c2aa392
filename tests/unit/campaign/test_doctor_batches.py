"""The doctor on the largest batches that searches found."""

from dlbench.campaign import doctor
from dlbench.common import files
from dlbench.study import batch_searches
from support.runs.healthy_folder import here as here
from support.runs.healthy_folder import mended, only


def test_a_file_that_does_not_say_what_was_found_is_moved_aside_and_searched_again(here):
    path = batch_searches.FOLDER / "one" / batch_searches.RESULT_FILE
    path.parent.mkdir(parents=True)
    found = {"search": "one", "batch_per_device": 8, "reason": "9 do not fit", "tries": []}
    files.write_json(path, found | {"search": "another"})
    problem = only()
    assert problem.kind == "largest batch" and "searches again" in problem.repair
    mended()
    assert not path.exists()
    files.write_json(path, found)
    assert doctor.examine() == []
