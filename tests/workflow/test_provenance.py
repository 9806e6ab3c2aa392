"""What a real campaign says of its machine, from the logs to the tables."""

import csv
import json

import pytest

from dlbench.common.files import sha256
from dlbench.machine import fingerprints


@pytest.mark.ci
def test_runs_of_one_machine_have_one_fingerprint_and_one_list_of_packages(campaign):
    with open(campaign.folder / "results/tables/runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 1
    for name in fingerprints.COLUMNS:
        (digest,) = {row[name] for row in rows}
        assert len(digest) == 64
    assert {row["repeats_differ"] for row in rows} == {""}
    (packages,) = (campaign.folder / "results/packages").iterdir()
    assert packages.stem == sha256(packages)
    for row in rows:
        record = campaign.folder / "results/runs" / row["run_id"] / "run.json"
        known = json.loads(record.read_text())["provenance"]
        (software,) = known["software"].values()
        assert software["packages_sha256"] == packages.stem
        assert fingerprints.columns(known)["hardware_sha256"] == row["hardware_sha256"]
