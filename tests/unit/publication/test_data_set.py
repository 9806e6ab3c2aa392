"""data_set: a history as a folder for Zenodo, Hugging Face and others."""

import json

import pyarrow.parquet as pq
import pytest
import yaml

from dlbench import Error
from dlbench.archive import crate
from dlbench.publication import cards, data_set
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
ADA = {"family-names": "Lovelace", "given-names": "Ada", "affiliation": "The north",
       "orcid": "https://orcid.org/0000-0002-1825-0097"}  # fmt: skip
CITATION = {"title": "Nightly", "authors": [ADA], "license": "CC-BY-4.0", "doi": "10.5281/zenodo.1"}


def test_it_has_the_history_unchanged_and_says_by_whom_under_which_licence_it_is(tmp_path):
    history, output = tmp_path / "history", tmp_path / "out"
    for week in range(10):
        level = 1000.0 if week < 6 else 900.0
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        made.add(history, week, rates, citation=json.dumps(CITATION))
    made_set = data_set.write(history, {}, output, title="Ours & theirs")
    for path in history.rglob("*.parquet"):
        assert (output / "history" / path.relative_to(history)).read_bytes() == path.read_bytes()
    assert (made_set.sessions, len(made_set.campaigns)) == (10, 10)
    assert made_set.licenses == ("CC-BY-4.0",)
    _, header, text = (output / cards.CARD).read_text().split("---\n", 2)
    assert "10 sessions of 10 campaigns on 1 machine, 2026-01-05 to 2026-03-09" in text
    header = yaml.safe_load(header)
    assert header["license"] == ["cc-by-4.0"] and header["size_categories"] == ["n<1K"]
    rows = {c["config_name"]: pq.read_table(output / c["data_files"]) for c in header["configs"]}
    assert {name: table.num_rows for name, table in rows.items()} == {
        "series": 20, "findings": 1, "changes": 2, "campaigns": 10,
    }  # fmt: skip
    found = json.loads((output / cards.ZENODO).read_text())
    assert (found["title"], found["license"]) == ("Ours & theirs", "cc-by-4.0")
    person = {"name": "Lovelace, Ada", "affiliation": "The north", "orcid": "0000-0002-1825-0097"}
    assert found["creators"] == [person]
    assert found["references"] == ["Ada Lovelace: Nightly. CC-BY-4.0. 10.5281/zenodo.1"]
    graph = json.loads((output / crate.METADATA).read_text())["@graph"]
    digests = {one["sha256"] for one in graph if one.get("name", "").startswith("EPYC")}
    assert digests == {f"{week:064x}" for week in range(10)}
    made.add(history, 11, {A: [1.0]}, citation=json.dumps(CITATION | {"license": "MIT"}))
    with pytest.raises(Error, match=r"10 campaigns: CC-BY-4\.0; 1 campaign: MIT"):
        data_set.write(history, {}, output)
