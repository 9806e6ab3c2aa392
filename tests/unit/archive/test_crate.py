"""The metadata of an archive pass the public validators, and do not if something is missing."""

import json
import re
import shutil
import subprocess
import zipfile

import pytest

from dlbench.archive import crate
from dlbench.common import tools
from support.archives import made_archives
from support.archives.made_archives import ARCHIVE, REPOSITORY

CRATE = f"archive/data/{crate.METADATA}"


def graph():
    with zipfile.ZipFile(made_archives.archived() / ARCHIVE) as archive:
        entities = json.loads(archive.read(CRATE))["@graph"]
    found = {entity["@id"]: entity for entity in entities}
    assert len(found) == len(entities)
    return found


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bag")
    with zipfile.ZipFile(made_archives.archived() / ARCHIVE) as archive:
        archive.extractall(folder)
    return folder / "archive"


IN_THEIR_ENVIRONMENT = [  # that of the public validators
    tools.find_uv(), "run", "--project", REPOSITORY / "envs/archive", "--frozen", "--no-active",
    "python",
]  # fmt: skip


def validators(bag):
    program = REPOSITORY / "tests/support/archives/archive_validators.py"
    command = [*IN_THEIR_ENVIRONMENT, program, bag]
    joined = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, text=True, check=False, **joined)


@pytest.mark.slow
def test_the_public_validators_are_content_without_a_network_and_see_what_is_wrong(bag, tmp_path):
    finished = validators(bag)
    assert finished.returncode == 0, finished.stdout
    assert "bagit 1.9.0: valid" in finished.stdout
    for profile, fewest in (("ro-crate-1.3", 60), ("workflow-run-crate", 60)):
        checks = re.search(rf"{profile}: (\d+) checks, passed", finished.stdout)
        assert int(checks[1]) > fewest
    shutil.copytree(bag, tmp_path / "bag")
    metadata = tmp_path / "bag" / "data" / crate.METADATA
    content = json.loads(metadata.read_text())
    for entity in content["@graph"]:
        if entity["@type"] == "CreateAction":
            entity.pop("instrument")
    metadata.write_text(json.dumps(content))
    finished = validators(tmp_path / "bag")
    assert finished.returncode != 0 and "validation failed" in finished.stdout  # of the bag
    # As one who made the bag anew would do.
    again = "import bagit, sys; bagit.Bag(sys.argv[1]).save(manifests=True)"
    command = [*IN_THEIR_ENVIRONMENT, "-c", again, tmp_path / "bag"]
    subprocess.run(command, check=True, capture_output=True)
    finished = validators(tmp_path / "bag")
    assert finished.returncode == 1
    assert "The Action MUST have an instrument property" in finished.stdout


def test_each_run_is_an_action_with_its_program_data_result_and_dates():
    found = graph()
    runs = [entity for at, entity in found.items() if at.startswith("#run-")]
    assert len(runs) == 8
    for run in runs:
        (result,) = run["result"]
        assert found[result["@id"]]["@type"] == "Dataset"
        assert run["startTime"] < run["endTime"]
        assert {"@id": "config.yaml"} in run["object"]
        assert run["instrument"]["@id"] in found
    digits = next(run for run in runs if "digits" in run["name"])
    assert {"@id": "manifests/digits.json"} in digits["object"]
    (other,) = (run for run in runs if "theirs" in run["name"])
    assert other["instrument"] == {"@id": "#trainer-theirs"}
    (failed,) = (run for run in runs if run["actionStatus"].endswith("FailedActionStatus"))
    assert failed["error"] == "failed: no <b>luck</b>"


def test_whatever_is_referred_to_and_every_file_that_it_names_is_in_the_archive(bag):
    found = graph()

    def references(value):
        if isinstance(value, dict):
            if set(value) == {"@id"}:
                yield value["@id"]
            else:
                yield from (at for item in value.values() for at in references(item))
        if isinstance(value, list):
            yield from (at for item in value for at in references(item))

    elsewhere = {crate.CRATE, crate.SNAKEMAKE}
    used = {at for entity in found.values() for at in references(list(entity.values()))}
    assert used - elsewhere <= found.keys()
    for at, entity in found.items():
        if "File" in entity["@type"] or (entity["@type"] == "Dataset" and at != "./"):
            assert (bag / "data" / at).exists(), at


def test_its_date_is_that_of_the_last_run():
    assert graph()["./"]["datePublished"] == "2026-01-01"
    assert graph()["#study"]["endTime"].startswith("2026-01-01T00:12:47")


def test_its_authors_are_those_of_the_citation():
    (author,) = graph()["./"]["author"]
    assert graph()[author["@id"]]["name"] == "The dlbench authors"
    person = {"given-names": "Ada", "name-particle": "de", "family-names": "Lovelace"}
    expected = {"@id": "#author-2", "@type": "Person", "name": "Ada de Lovelace"}
    assert crate.author(2, person) == expected
    place = {"name": "A centre", "website": "https://example.org"}
    expected = {"@id": "https://example.org", "@type": "Organization", "name": "A centre"}
    assert crate.author(1, place) == expected


def test_images_are_named_by_their_digests_and_a_run_takes_less_than_one_and_a_half_kilobytes():
    run = {"label": "x" * 60, "status": "ok", "message": "", "dataset": "synthetic",
           "trainer": "dlbench", "image": "sha256:ab", "started": None, "ended": None}  # fmt: skip

    def metadata(number):
        runs = [run | {"id": f"lenet5-digits-b8-single-1x1-r1-{n:010}"} for n in range(number)]
        return crate.metadata("x", [], "MIT", "9", ["Snakefile"], runs)

    found = json.loads(metadata(1))["@graph"]
    (image,) = (entity for entity in found if entity["@type"] == "ContainerImage")
    (action,) = (entity for entity in found if entity["@id"].startswith("#run-"))
    assert action["containerImage"] == {"@id": image["@id"]}
    assert image["sha256"] == "ab" and "startTime" not in action
    assert len(metadata(200)) - len(metadata(100)) < 100 * 1500
