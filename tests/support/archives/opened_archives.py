"""A small sound archive, and what is wrong with another."""

import pytest

from dlbench.archive import crate, verify_archive

SOUND = {"results/tables/runs.csv": b"run_id\n", "notes/a.txt": b"text"}


def problems(path):
    with verify_archive.open_bag(path) as bag:
        return verify_archive.problems(bag)


@pytest.fixture
def sound(tmp_path):
    crate.write(tmp_path / "sound.zip", SOUND, [("Bagging-Date", "2026-01-01")])
    return tmp_path / "sound.zip"
