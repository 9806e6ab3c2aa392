"""The archive as Snakemake makes it, and as others use it: checked, made again, gone on with."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest
import yaml

from dlbench.tables import table_names
from support.campaigns.campaign import STUDY, Campaign
from support.campaigns.killed_workflows import finished_files, processes, started, wait_for

ARCHIVE = "results/archive.zip"


def program(campaign, name, *arguments):
    return subprocess.run(
        [sys.executable, f"workflow_scripts/{name}", *map(str, arguments)],
        cwd=campaign.folder,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout


# More than Linux takes as one argument of a command, which is 128 KiB.
LONG = [{"model": "cnn12", "dataset": "digits", "reason": f"{n}: {4000 * 'x'}"} for n in range(40)]


@pytest.mark.ci
def test_an_archive_is_written_once_checked_and_made_again_elsewhere(campaign, tmp_path):
    campaign.matrix(exclude=LONG)
    assert not (campaign.folder / ARCHIVE).exists()  # no part of all
    output = campaign.succeed("archive")
    assert f"{ARCHIVE}: 3 runs" in output
    before = (campaign.folder / ARCHIVE).read_bytes()
    assert campaign.scheduled("--cores", "1", "archive") == {}

    assert "3 runs; SHA-256" in program(campaign, "dlbench", "verify", ARCHIVE)
    again = Campaign(tmp_path / "again")
    archive = shutil.move(campaign.folder / ARCHIVE, tmp_path / "sent.zip")
    shutil.move(campaign.folder, tmp_path / "gone")
    gone = Campaign(tmp_path / "gone")
    found = program(gone, "dlbench", "rederive", archive, "--output", again.folder)
    assert found == (
        f"identical: {len(table_names.OF_STUDY)} tables, 2 figures, the report, 9 tables of runs; "
        "3 records say what their logs do\n"
    )
    assert "3 runs to train" in program(gone, "dlbench", "rederive", archive, "--list")

    # By hand it has the same bytes, whatever the order of keys in the config.
    shuffled = yaml.safe_load((gone.folder / "config.yaml").read_text())
    text = yaml.safe_dump(dict(reversed(shuffled.items())), sort_keys=False)
    (tmp_path / "shuffled.yaml").write_text(text)
    flags = ("--configfile", tmp_path / "shuffled.yaml", "--output", tmp_path / "by_hand.zip")
    program(gone, "dlbench", "archive", *flags)
    assert (tmp_path / "by_hand.zip").read_bytes() == before

    # Neither does making it again change it, nor an archive of the archive.
    gone.succeed("archive")
    assert (gone.folder / ARCHIVE).read_bytes() == before
    again.succeed("archive", "--cores", "1")
    lists = {"manifest-sha256.txt", "tagmanifest-sha256.txt", "bag-info.txt"}
    assert differing(again.folder / ARCHIVE, archive) - {f"archive/{name}" for name in lists} == {
        "archive/data/as_given/config.yaml"
    }


def differing(one, other):
    """Names of what differs in two zip files."""
    contents = []
    for path in (one, other):
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    names = contents[0].keys() | contents[1].keys()
    return {name for name in names if contents[0].get(name) != contents[1].get(name)}


def test_a_run_deleted_in_the_unpacked_archive_is_the_only_one_scheduled(campaign, tmp_path):
    campaign.succeed("archive")
    with zipfile.ZipFile(campaign.folder / ARCHIVE) as archive:
        archive.extractall(tmp_path / "unpacked")
    shutil.rmtree(campaign.folder)
    unpacked = Campaign(tmp_path / "unpacked" / "archive" / "data")
    assert unpacked.scheduled() == {}
    lost = unpacked.run_id("lenet5-digits")
    shutil.rmtree(unpacked.folder / "results/runs" / lost)
    scheduled = unpacked.scheduled()
    assert scheduled["train"] == [lost]
    # What training needs is not in the archive.
    assert scheduled["convert_dataset"] == ["digits"] and "read_run" not in scheduled


@pytest.mark.slow
def test_a_run_more_makes_another_archive(campaign):
    campaign.succeed("archive")
    before = (campaign.folder / ARCHIVE).read_bytes()
    campaign.configure(
        matrix=[
            STUDY["matrix"][0]
            | {
                "batch_per_device": [4, 8],
                "exclude": [
                    {"model": "cnn12", "dataset": "digits"},
                    {"model": "cnn12", "batch_per_device": 8},
                ],
            }
        ]
    )
    scheduled = campaign.scheduled("--cores", "1", "archive")
    assert len(scheduled["train"]) == 2 and "write_archive" in scheduled
    assert "5 runs" in campaign.succeed("archive")
    assert (campaign.folder / ARCHIVE).read_bytes() != before


def test_an_archive_whose_writing_was_killed_is_written_again_and_whole(campaign):
    campaign.succeed("report")
    chance = random.Random(1)
    before = finished_files(campaign)
    for _ in range(2):
        with started(campaign, "archive") as workflow:
            pids = wait_for(lambda: processes(campaign.folder, "/dlbench"), "no archive is written")
            time.sleep(chance.uniform(0, 0.4))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            workflow.wait(120)
        # Whole or not there: what was killed leaves no half of it under that name.
        if (campaign.folder / ARCHIVE).exists():
            program(campaign, "dlbench", "verify", ARCHIVE)
            (campaign.folder / ARCHIVE).unlink()
    assert finished_files(campaign) == before
    campaign.succeed("archive")
    assert "3 runs; SHA-256" in program(campaign, "dlbench", "verify", ARCHIVE)
