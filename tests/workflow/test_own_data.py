"""What users bring: pictures, arrays and tables as data, and the files that docs/adding.md adds."""

import numpy as np
import pytest
from PIL import Image

from support.campaigns.campaign import TRAINED
from support.studies.site_facts import CONFIG

BLOCK = {
    "name": "own", "model": "cnn12", "dataset": "photos", "batch_per_device": 4, "epochs": 1,
    "warmup_steps": 1,
}  # fmt: skip


def paint(path, brightness):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(brightness).integers(0, 20, (40, 50, 3), np.uint8)
    Image.fromarray(noise + np.uint8(brightness)).save(path)


@pytest.mark.ci
def test_a_folder_of_pictures_is_trained_on_and_converted_again_when_it_changes(fresh, tmp_path):
    own = tmp_path / "pictures"
    for number in range(12):
        paint(own / "dark" / f"{number}.jpg", 10 + number)
        paint(own / "light" / f"{number}.png", 200 + number)
    images = {"photos": {"path": str(own)}}
    fresh.configure(matrix=[BLOCK], data=CONFIG["data"] | {"images": images}, figures=[])
    fresh.succeed()
    (record,) = fresh.records().values()
    assert record["status"] in TRAINED, record["message"]
    assert record["summary"]["steps_measured"] == 20 // 4  # a fifth of 24 is held out

    (own / "notes.txt").write_text("no picture")
    assert fresh.scheduled() == {}
    (own / "dark" / "3.jpg").write_text("<html>not found</html>")
    finished = fresh.snakemake()
    assert finished.returncode != 0
    assert "1 of 24 pictures below" in finished.stdout
    assert "dark/3.jpg (does not decode as an image: it is a web page)" in finished.stdout
    listed = fresh.folder / "results/data/photos/unreadable.txt"
    assert "dark/3.jpg" in listed.read_text() and "a web page" in listed.read_text()

    paint(own / "dark" / "3.jpg", 60)
    jobs = fresh.scheduled()
    assert jobs["convert_pictures"] == ["photos"]
    assert len(jobs["train"]) == 1 and "fetch_dataset" not in jobs
    fresh.succeed("data")
    assert not listed.exists()
