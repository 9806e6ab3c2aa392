"""Containers in the real Snakefile: images are made once, the directive works, reruns are right."""

import pytest

from support.campaigns.campaign import TRAINED
from support.trainers.other_trainer import SCRIPT

BLOCK = {
    "name": "contained", "model": "lenet5", "dataset": "digits", "batch_per_device": 8,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(campaign, folder, tmp_path_factory):
    """A finished campaign: on bare metal, in a container by directive, and by two commands."""
    copy = campaign.copied(tmp_path_factory.mktemp("contained") / "project")
    configure(copy, folder)
    copy.succeed()
    return copy


def configure(campaign, folder):
    two = {"strategy": "horovod", "devices_per_node": 2, "launcher": "mpirun"}
    include = [two, {"copies_per_node": 2}]
    block = {**BLOCK, "runtime": ["bare", "apptainer"]}
    more = [{"runtime": "apptainer", **entry} for entry in include]
    images = {"train": {"source": str(folder)}}
    campaign.configure(images=images, matrix=[{**block, "include": more}], figures=[])


@pytest.mark.ci
def test_runs_enter_their_image_by_directive_or_by_command(trained):
    found = trained.records().values()
    assert {record["status"] for record in found} <= set(TRAINED), [r["message"] for r in found]
    ways = [
        (
            record["spec"].get("runtime", "bare"),
            record["spec"].get("launcher"),
            record["spec"].get("copies_per_node", 1),
            (record["provenance"]["container"] or {}).get("start"),
        )
        for record in found
    ]
    expected = [
        ("bare", None, 1, None),
        ("apptainer", None, 1, "directive"),
        ("apptainer", "mpirun", 1, "directive"),
        ("apptainer", None, 2, "command"),
    ]
    assert sorted(ways, key=str) == sorted(expected, key=str)
    inside = [record for record in found if "runtime" in record["spec"]]
    assert all(all(record["provenance"]["containment"]) for record in inside)
    assert len({record["provenance"]["container"]["digest"] for record in inside}) == 1
    assert trained.scheduled() == {}


def test_an_image_with_other_content_trains_its_runs_again_and_no_others(trained, folder):
    (folder / "etc/motd").touch()  # also where it was there: no other content
    marker = folder / "etc/dlbench-image.json"
    marker.touch()
    try:
        (folder / "opt/new").write_text("other content")
        scheduled = trained.scheduled()
        ids = [
            run_id for run_id, record in trained.records().items() if "runtime" in record["spec"]
        ]
        assert scheduled["train"] == sorted(ids)
        assert scheduled["make_image"] == ["train"]
    finally:
        (folder / "opt/new").unlink()
    assert trained.scheduled() == {}


@pytest.mark.ci
def test_without_the_deployment_method_no_run_is_trained_on_bare_metal(trained):
    run_id = next(
        run_id
        for run_id, record in trained.records().items()
        if (record["provenance"]["container"] or {}).get("start") == "directive"
    )
    log = trained.folder / "results/runs" / run_id / "train.jsonl"
    log.unlink()
    profile = trained.folder / "profiles/default/profile.yaml"
    text = profile.read_text()
    try:
        profile.write_text(text.replace("software-deployment-method:\n  - apptainer\n", ""))
        finished = trained.snakemake(f"results/runs/{run_id}/run.json")
    finally:
        profile.write_text(text)
    assert finished.returncode != 0
    output = "Snakemake's container directive did not enter the image train: call it with"
    assert output in finished.stdout
    assert not log.exists()


# Last, for it changes the study that the others share.
def test_another_program_trains_in_the_image_and_leaves_proof(trained, folder):
    (trained.folder / "softmax.py").write_text(SCRIPT)
    block = {
        "name": "theirs", "trainer": "softmax", "model": "softmax", "dataset": "noise",
        "batch_per_device": 16, "steps": 20, "runtime": "apptainer",
        "include": [{"runtime": "udocker", "runtime_options": {"execmode": "S1"}}],
    }  # fmt: skip
    command = ["{python}", "softmax.py", "{batch_per_device}", "{steps}", "none"]
    other = {"softmax": {"command": command, "log": "tf_cnn_benchmarks", "files": ["softmax.py"]}}
    images = {"train": {"source": str(folder)}}
    trained.configure(images=images, matrix=[block], trainers=other, figures=[])
    trained.succeed()
    found = [record for name, record in trained.records().items() if name.startswith("softmax-")]
    assert {r["spec"]["runtime"] for r in found} == {"apptainer", "udocker"}
    for record in found:
        assert record["status"] in TRAINED, record["message"]
        container = record["provenance"]["container"]
        assert container["start"] == "command"
        (marker,) = record["provenance"]["containment"]
        assert marker["image_id"] and record["summary"]["images_per_second"] > 0
