"""data_set: a history as a folder for Zenodo, Hugging Face and others."""

import hashlib
import json
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dlbench import Error
from dlbench.archive import crate
from dlbench.common import tools
from dlbench.publication import cards, data_set
from support.history import made_histories as made
from support.machines.paths import REPOSITORY

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
ADA = {
    "family-names": "Lovelace",
    "name-particle": "of",
    "given-names": "Ada",
    "orcid": "https://orcid.org/0000-0002-1825-0097",
    "affiliation": "The north",
}
CITATION = {"title": "Nightly", "authors": [ADA], "license": "CC-BY-4.0", "doi": "10.5281/zenodo.1"}


@pytest.fixture
def history(tmp_path):
    folder = tmp_path / "history"
    for week in range(10):
        level = 1000.0 if week < 6 else 900.0
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        made.add(folder, week, rates, citation=json.dumps(CITATION))
    centre = {"name": "A centre"}  # twice for Zenodo, which knows no addresses
    authors = [centre, centre | {"email": "a@b"}, {"alias": "nobody"}]
    group = CITATION | {"authors": authors, "doi": ""}
    made.add(folder, 3, {A: [7.0]}, machine="Xeon", site="a | <b>", citation=json.dumps(group))
    withdrawn = made.add(folder, 4, {A: [9.0]}, machine="Xeon", site="there")
    (folder / withdrawn).with_suffix(".withdrawn").write_text("wrong BIOS")
    return folder


def write(history, output, **options):
    made_set = data_set.write(history, {}, output, **options)
    return made_set, {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.rglob("*"))
        if path.is_file()
    }


def graph(files):
    return {one["@id"]: one for one in json.loads(files[crate.METADATA])["@graph"]}


def test_it_has_the_history_unchanged_and_says_what_is_in_it(history, tmp_path):
    made_set, files = write(history, tmp_path / "out")
    for path in history.rglob("*"):
        if path.is_file():
            assert files[f"history/{path.relative_to(history)}"] == path.read_bytes()
    assert (made_set.sessions, len(made_set.campaigns)) == (11, 11)
    assert made_set.licenses == ("CC-BY-4.0",)
    assert (
        b"11 sessions of 11 campaigns on 2 machines, 2026-01-05 to 2026-03-09" in files["README.md"]
    )


def test_the_card_leads_to_plain_tables_of_what_counts(history, tmp_path):
    _, files = write(history, tmp_path / "out")
    _, header, _ = files[cards.CARD].decode().split("---\n", 2)
    header = yaml.safe_load(header)
    assert header["license"] == ["cc-by-4.0"] and header["size_categories"] == ["n<1K"]
    tables = {c["config_name"]: tmp_path / "out" / c["data_files"] for c in header["configs"]}
    assert list(tables) == ["series", "findings", "changes", "campaigns"]
    for path in tables.values():
        schema = pq.read_schema(path)
        assert not any(pa.types.is_dictionary(f.type) for f in schema)
    series = pq.read_table(tables["series"])
    assert set(series["site"].to_pylist()) == {"here", "a | <b>"} and len(series) == 21
    assert pq.read_table(tables["findings"]).num_rows == 1


def test_the_card_does_not_lead_to_tables_without_rows_which_readers_refuse(tmp_path):
    made.add(tmp_path / "history", 0, {A: [1.0, 2.0]}, citation=json.dumps(CITATION))
    _, files = write(tmp_path / "history", tmp_path / "out")
    header = yaml.safe_load(files[cards.CARD].decode().split("---\n", 2)[1])
    assert [one["config_name"] for one in header["configs"]] == ["series", "campaigns"]
    assert "tables/findings.parquet" in files


def test_zenodo_gets_each_author_licence_and_citation(history, tmp_path):
    _, files = write(history, tmp_path / "out", title="Ours & theirs")
    found = json.loads(files[cards.ZENODO])
    assert found["title"] == "Ours & theirs" and found["upload_type"] == "dataset"
    assert found["license"] == "cc-by-4.0"
    person = {"name": "of Lovelace, Ada", "affiliation": "The north"}
    person |= {"orcid": "0000-0002-1825-0097"}
    assert found["creators"] == [person, {"name": "A centre"}]
    assert found["references"] == [
        "A centre: Nightly. CC-BY-4.0",
        "Ada of Lovelace: Nightly. CC-BY-4.0. 10.5281/zenodo.1",
    ]
    (related,) = found["related_identifiers"]
    assert related["identifier"] == "10.5281/zenodo.1" and related["relation"] == "isDerivedFrom"


def test_the_crate_keeps_author_licence_and_digest_of_each_archive(history, tmp_path):
    _, files = write(history, tmp_path / "out")
    found = graph(files)
    file = next(one for at, one in found.items() if "s3-Xeon" in at and one["@type"] == "File")
    campaign = found[file["isBasedOn"]["@id"]]
    assert campaign["name"] == "Xeon3.zip" and campaign["sha256"] == f"{3:064x}"
    assert [found[a["@id"]]["name"] for a in campaign["author"]][:1] == ["A centre"]
    assert [found[a["@id"]]["name"] for a in campaign["license"]] == ["CC-BY-4.0"]
    assert not files.keys() - {crate.METADATA} - {one.get("name") for one in found.values()}


@pytest.mark.slow
def test_the_public_validator_is_content_with_the_crate(history, tmp_path):
    write(history, tmp_path / "out")
    project = REPOSITORY / "envs/archive"
    program = REPOSITORY / "tests/support/archives/archive_validators.py"
    command = [tools.find_uv(), "run", "--project", project, "--frozen", "--no-active", "python"]
    done = subprocess.run(
        [*command, program, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ro-crate-1.3" in done.stdout and "process-run-crate" in done.stdout


def test_equal_histories_give_equal_bytes_and_a_later_one_replaces_the_earlier(history, tmp_path):
    _, first = write(history, tmp_path / "out")
    copied = shutil.copytree(history, tmp_path / "else" / "where")
    _, second = write(copied, tmp_path / "out2")
    digests = [
        {n: hashlib.sha256(c).hexdigest() for n, c in one.items()} for one in (first, second)
    ]
    assert digests[0] == digests[1]
    (tmp_path / "out" / ".gitattributes").write_text("*.parquet lfs")
    shutil.rmtree(copied / "site=there")
    _, third = write(copied, tmp_path / "out")
    gone = first.keys() - third.keys()
    assert len(gone) == 2 and all(name.startswith("history/site=there") for name in gone)
    assert ".gitattributes" in third


def test_another_folder_no_history_and_an_empty_one_are_refused(history, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("dear")
    with pytest.raises(Error, match="or an earlier data set, found something else"):
        write(history, tmp_path / "mine")
    assert (tmp_path / "mine" / "README.md").read_text() == "dear"
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(Error, match="expected a history with sessions that count"):
            write(tmp_path / folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_texts_of_others_stay_texts_in_each_format(history, tmp_path):
    evil = "x | y --- </script><b>\n# title\n[a](javascript:b) é"
    content = {"title": evil, "authors": [{"name": evil, "orcid": evil}, "no"], "license": ["MIT"]}
    made.add(history, 20, {A: [1.0]}, source=evil, citation=json.dumps(content))
    _, files = write(history, tmp_path / "out", title=evil, license_id="MIT")
    header = yaml.safe_load(files[cards.CARD].decode().split("---\n", 2)[1])
    assert header["pretty_name"] == evil
    body = files[cards.CARD].decode().split("---\n", 2)[2]
    assert "<b>" not in body.replace("\\<b\\>", "") and "\n# title" not in body
    assert json.loads(files[cards.ZENODO])["title"] == evil
    entities = json.loads(files[crate.METADATA])["@graph"]
    assert len(graph(files)) == len(entities)
    assert not any(evil in one["@id"] for one in entities)
