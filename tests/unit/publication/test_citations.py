"""citations: the licence and the authors of a collection."""

import json

import pytest

from dlbench import Error
from dlbench.history import analyse_history
from dlbench.publication import citations
from dlbench.publication.citations import Campaign
from support.history import made_histories as made

ADA = {"family-names": "Lovelace", "given-names": "Ada"}


def campaign(licenses, authors=(ADA,), source="a.zip"):
    return Campaign(source, "", "", ("f",), {"license": licenses, "authors": list(authors)})


def test_one_licence_of_all_campaigns_is_that_of_the_collection():
    assert citations.licenses([campaign("MIT"), campaign("MIT")], None) == ("MIT",)
    both = ["MIT", "Apache-2.0"]  # the format allows a list
    assert citations.licenses([campaign(both)], None) == ("MIT", "Apache-2.0")


@pytest.mark.parametrize("other", ["CC-BY-NC-4.0", None, "see <LICENSE>", 7.5j])
def test_several_licences_or_an_unknown_one_must_be_decided_by_whoever_publishes(other):
    found = [campaign("MIT"), campaign("MIT"), campaign(other)]
    with pytest.raises(Error, match=r"name it with --license.* 2 campaigns: MIT") as error:
        citations.licenses(found, None)
    assert other != "CC-BY-NC-4.0" or "1 campaign: CC-BY-NC-4.0" in str(error.value)
    assert citations.licenses(found, "CC-BY-4.0") == ("CC-BY-4.0",)


def test_a_licence_that_is_no_identifier_is_refused():
    with pytest.raises(Error, match="expected an SPDX identifier"):
        citations.licenses([], "Creative Commons")


def test_each_author_is_named_once():
    group = {"name": "A centre"}
    found = citations.authors([campaign("MIT"), campaign("MIT", [ADA, group, "no author"])])
    assert found == [ADA, group]


def test_the_text_of_a_campaign_names_authors_title_licence_and_doi():
    content = {"title": "Nightly", "authors": [ADA], "license": "MIT", "doi": "10.1/2"}
    text = Campaign("a.zip", "", "study", ("f",), json.loads(json.dumps(content))).text
    assert text == "Ada Lovelace: Nightly. MIT. 10.1/2"
    assert Campaign("a.zip", "", "study", ("f",), {}).text == "study"


@pytest.mark.parametrize(
    "text", ["", "no", "[1]", '{"authors": 7}', '{"authors": [{"name": ["x"]}, 3], "license": {}}']
)
def test_a_citation_that_others_made_up_names_nobody_and_stops_nothing(tmp_path, text):
    made.add(tmp_path, 0, {made.fields(): [1.0]}, citation=text)
    rows = analyse_history.analyse(tmp_path, {}, citations.TEXTS).rows
    (one,) = citations.campaigns(rows)
    assert one.licenses == () and one.text.endswith("nightly")
    assert citations.authors([one]) == []
