"""The archive as Snakemake makes it, and as others use it: checked, made again, gone on with."""

import shutil
import zipfile

import pytest
import yaml

from dlbench.tables import cells
from support.campaigns.campaign import Campaign

ARCHIVE = "results/archive.zip"
# More than Linux takes as one argument of a command, which is 128 KiB.
LONG = [{"model": "cnn12", "dataset": "digits", "reason": f"{n}: {4000 * 'x'}"} for n in range(40)]


@pytest.mark.ci
def test_an_archive_is_written_once_checked_and_made_again_elsewhere(campaign, tmp_path):
    campaign.matrix(exclude=LONG)
    assert not (campaign.folder / ARCHIVE).exists()  # no part of all
    assert f"{ARCHIVE}: 3 runs" in campaign.succeed("archive")
    before = (campaign.folder / ARCHIVE).read_bytes()
    assert campaign.scheduled("--cores", "1", "archive") == {}
    campaign.matrix(exclude=LONG, seed=2)
    scheduled = campaign.scheduled("--cores", "1", "archive")
    assert len(scheduled["train"]) == 3 and "write_archive" in scheduled
    campaign.matrix(exclude=LONG)

    assert "3 runs; SHA-256" in campaign.dlbench("verify", ARCHIVE)
    again = Campaign(tmp_path / "again")
    archive = shutil.move(campaign.folder / ARCHIVE, tmp_path / "sent.zip")
    shutil.move(campaign.folder, tmp_path / "gone")
    gone = Campaign(tmp_path / "gone")
    assert gone.dlbench("rederive", archive, "--output", again.folder) == (
        f"identical: {len(cells.OF_STUDY)} tables, 2 figures, the report, 9 tables of runs; "
        "3 records say what their logs do\n"
    )

    # By hand it has the same bytes, whatever the order of keys in the config.
    shuffled = yaml.safe_load((gone.folder / "config.yaml").read_text())
    text = yaml.safe_dump(dict(reversed(shuffled.items())), sort_keys=False)
    (tmp_path / "shuffled.yaml").write_text(text)
    flags = ("--configfile", tmp_path / "shuffled.yaml", "--output", tmp_path / "by_hand.zip")
    gone.dlbench("archive", *flags)
    assert (tmp_path / "by_hand.zip").read_bytes() == before

    # Nor does an archive of the archive differ.
    again.succeed("archive", "--cores", "1")
    lists = {"manifest-sha256.txt", "tagmanifest-sha256.txt", "bag-info.txt"}
    assert differing(again.folder / ARCHIVE, archive) - {f"archive/{name}" for name in lists} == {
        "archive/data/as_given/config.yaml"
    }

    # In it what is lost is trained again. What training needs it does not have.
    lost = again.run_id("lenet5-digits")
    shutil.rmtree(again.folder / "results/runs" / lost)
    scheduled = again.scheduled()
    assert scheduled["train"] == [lost]
    assert scheduled["convert_dataset"] == ["digits"] and "record_run" not in scheduled


def differing(one, other):
    """Names of what differs in two zip files."""
    contents = []
    for path in (one, other):
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    names = contents[0].keys() | contents[1].keys()
    return {name for name in names if contents[0].get(name) != contents[1].get(name)}
