"""Datasets of the user outside of the project: a folder of pictures, and a file of Python."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

from support.project import adding_page

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
    data = yaml.safe_load((fresh.folder / "config.yaml").read_text())["data"]
    settings = {"path": str(own)}
    arrays = np.arange(24, dtype=np.uint8).repeat(1024).reshape(24, 32, 32)
    np.savez(tmp_path / "arrays.npz", x_train=arrays, y_train=np.arange(24) % 2)
    (tmp_path / "datasets").mkdir()
    stripes = "workflow_scripts/dlbench/data/datasets/stripes.py"
    (tmp_path / "datasets" / "bars.py").write_text(adding_page.files()[stripes])
    fresh.configure(
        matrix=[
            BLOCK,
            BLOCK | {"name": "file", "model": "lenet5", "dataset": "bars", "batch_per_device": 40},
            BLOCK | {"name": "arrays", "model": "lenet5", "dataset": "arrays"},
        ],
        data=data
        | {"images": {"photos": settings, "arrays": {"numpy": str(tmp_path / "arrays.npz")}}},
        dataset_folder=str(tmp_path / "datasets"),
        figures=[],
    )
    fresh.succeed()
    for name in ("lenet5-bars-", "lenet5-arrays-"):
        assert json.loads(fresh.record(name).read_text())["status"] in ("ok", "unstable")
    record = json.loads(fresh.record("cnn12-photos-").read_text())
    assert record["status"] in ("ok", "unstable"), record["message"]
    assert record["summary"]["steps_measured"] == 20 // 4  # a fifth of 24 is held out

    (own / "notes.txt").write_text("no picture")
    assert fresh.scheduled() == {}
    (own / "dark" / "3.jpg").write_text("<html>not found</html>")
    finished = fresh.snakemake()
    assert finished.returncode != 0
    assert "1 of 24 pictures below" in finished.stdout
    assert "dark/3.jpg (does not decode as an image: it is a web page)" in finished.stdout
    listed = (fresh.folder / "results/data/photos/unreadable.txt").read_text()
    assert "dark/3.jpg" in listed and "a web page" in listed

    paint(own / "dark" / "3.jpg", 60)
    jobs = fresh.scheduled()
    assert jobs["convert_pictures"] == ["photos"]
    assert len(jobs["train"]) == 1 and "fetch_dataset" not in jobs
    fresh.succeed()
    assert not (fresh.folder / "results/data/photos/unreadable.txt").exists()
