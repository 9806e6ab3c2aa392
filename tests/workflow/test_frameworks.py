"""The framework is an axis: its runs have their environment, and are compared or skipped."""

import pytest

from support.campaigns.campaign import REPOSITORY, TRAINED

ENVIRONMENTS = {"tensorflow": "train", "jax": "jax", "pytorch": "pytorch"}
OTHERS = {"jax", "pytorch"}
needs_all = pytest.mark.skipif(
    not all((REPOSITORY / f"envs/{name}/.venv/bin/python").exists() for name in OTHERS),
    reason="dlbench environment makes envs/jax and envs/pytorch",
)


@pytest.mark.ci
@needs_all
def test_a_study_trains_with_all_frameworks_and_compares_them(fresh):
    block = {
        "name": "all", "framework": [*ENVIRONMENTS], "model": "lenet5", "dataset": "digits",
        "batch_per_device": 16, "warmup_steps": 1, "steps": 3,
        "strategy": ["single", "mirrored"], "evaluate": "yes",
        "must_reach": {"top1": 0.999},  # in three steps
        "exclude": [{"framework": "tensorflow", "strategy": "mirrored"}],
    }  # fmt: skip
    compared = [{"field": "framework", "base": "tensorflow"}]
    fresh.configure(matrix=[block], compare=compared, figures=[])
    fresh.succeed("all", "report")
    report = (fresh.folder / "results/report.html").read_text()
    assert "Frameworks differ by design" in report
    runs = {(row["framework"], row["strategy"]): row for row in fresh.rows()}
    assert len(runs) == 5
    for name, environment in ENVIRONMENTS.items():
        row = runs[name, "single"]
        assert row["status"] in TRAINED, row
        assert row["learning_gate"].startswith("missed: top1 ")
        assert row["environment"] == environment and row["framework_version"]
        assert f"{name} {row['framework_version']}" in report
    strategies = {row["run_id"]: row["strategy"] for row in fresh.rows()}
    compared = {
        (row["condition"], strategies[row["settings_of"]]): row for row in fresh.rows("comparisons")
    }
    assert {row["base"] for row in compared.values()} == {"tensorflow"}
    for name in OTHERS:
        assert runs[name, "mirrored"]["status"] == "skipped"
        assert float(compared[name, "single"]["ratio"]) > 0
