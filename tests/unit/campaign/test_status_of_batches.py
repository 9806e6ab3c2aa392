"""status: what it says of the largest batches that a config asks for."""

import pytest

from dlbench.campaign import status
from dlbench.study import trainer_environments
from support.studies.found_batches import write_found
from support.studies.made_studies import BLOCK, study

WIDEST = BLOCK | {"batch_per_device": "max", "steps": 5}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)


def lines(made):
    return list(status.lines(status.report(made)))


def test_a_search_is_named_before_it_began_while_it_goes_on_and_when_it_is_done():
    made = study(WIDEST)
    ((search_id, search),) = made.searches.items()
    assert f"  to find  {search.label()}" in lines(made)
    assert "           the next start finds it before it trains the runs" in lines(made)
    for batch in (1, 2):
        place = search.folder / f"b{batch}"
        place.mkdir(parents=True)
        (place / "run.json").write_text("{}")
    assert "           2 tried so far; the next start goes on" in lines(made)
    write_found(search_id)
    (one,) = status.report(study(WIDEST))["largest_batches"]
    assert one == {
        "search": search_id, "label": search.label(), "state": "found", "batch_per_device": 48,
        "reason": "49 is too many", "tries": 2,
    }  # fmt: skip
    assert not any("largest batch" in line for line in lines(study()))
    assert "           49 is too many" in lines(study(WIDEST))
