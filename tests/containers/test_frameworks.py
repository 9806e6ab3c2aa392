"""Images of other frameworks than TensorFlow, built from their environments by the same recipe."""

import shutil

import pytest

from dlbench.trainer import engine
from support.campaigns.campaign import TRAINED
from support.images.contained_runs import BLOCK


@pytest.mark.parametrize("framework", ["jax", "pytorch"])  # the latter has gigabytes
def test_an_image_of_a_frameworks_environment_is_built_and_trains_without_tensorflow(
    campaign, built_here, place, framework
):
    project = campaign.copied(place / framework)
    try:
        project.configure(
            images={engine.environment(framework): built_here},
            matrix=[{**BLOCK, "framework": framework}],
            figures=[],
        )
        project.succeed(timeout=1800)
        (record,) = project.records().values()
    finally:
        shutil.rmtree(project.folder)
    assert record["status"] in TRAINED, record["message"]
    assert all(record["provenance"]["containment"])
    versions = record["provenance"]["versions"]
    assert framework in versions and "tensorflow" not in versions
