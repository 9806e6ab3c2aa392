"""Images of other frameworks than TensorFlow, built from their environments by the same recipe."""

import json
import shutil

import pytest

from dlbench.trainer import engine
from support.images.contained_runs import BLOCK


@pytest.mark.slow
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
        (run_id,) = project.ids()
        record = json.loads((project.folder / "results/runs" / run_id / "run.json").read_text())
    finally:
        shutil.rmtree(project.folder)
    assert record["status"] in ("ok", "unstable"), record["message"]
    assert all(record["provenance"]["containment"])
    versions = record["provenance"]["versions"]
    assert framework in versions and "tensorflow" not in versions
