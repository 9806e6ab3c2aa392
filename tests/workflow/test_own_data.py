"""What users bring: pictures, arrays and tables as data, and the files that docs/adding.md adds."""

import numpy as np
import pytest
from PIL import Image

from support.campaigns.campaign import TRAINED
from support.project import adding_page
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


def test_runs_of_own_files_and_of_all_that_docs_add_are_trained_and_drawn(fresh, tmp_path):
    adding_page.write(fresh.folder)
    adding_page.write_sources(fresh.folder / "own_data")
    (tmp_path / "datasets").mkdir()
    stripes = "workflow_scripts/dlbench/data/datasets/stripes.py"
    (tmp_path / "datasets" / "bars.py").write_text(adding_page.files()[stripes])
    own = {"batch_per_device": 8, "warmup_steps": 1, "epochs": 2}
    added = own | {"strategy": "mirrored_one", "launcher": "nice", "must_reach": {"top1": 0.6}}
    gate = {"must_reach": {"top1": 0.9}}
    fresh.configure(
        matrix=[
            added
            | {"name": "added", "model": "mlp", "dataset": "stripes", "batch_per_device": [8, 16]},
            own | {"name": "table", "model": "mlp", "dataset": "readings"} | gate,
            own | {"name": "photographs", "model": "cnn12", "dataset": "photos"},
            own | {"name": "file", "model": "lenet5", "dataset": "bars"},
        ],
        data=CONFIG["data"] | {"manual_dir": "own_data"},
        dataset_folder=str(tmp_path / "datasets"),
        model_folder="my_models",
        figures=["resident_set"],
    )
    fresh.succeed()
    records = {record["spec"]["dataset"]: record for record in fresh.records().values()}
    assert sorted(records) == ["bars", "photos", "readings", "stripes"]
    for record in records.values():
        assert record["status"] in TRAINED, record["message"]
    # Of the second epoch.
    assert records["readings"]["summary"]["steps_measured"] == 160 // 8
    assert records["photos"]["summary"]["steps_measured"] == 40 // 8
    assert records["readings"]["summary"]["top1"] > 0.9
    assert records["stripes"]["summary"]["top1"] > 0.6
    command = records["stripes"]["provenance"]["command"]
    nice = command.index("nice")
    assert command[nice : nice + 3] == ["nice", "-n", "5"]
    assert "bytes" in (fresh.folder / "results/figures/resident_set.svg").read_text()
    assert fresh.scheduled() == {}
