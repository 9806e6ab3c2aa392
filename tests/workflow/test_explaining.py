"""explain: probes tell what a known delay costs, and are no part of a study's statistics."""

import pytest

LIBRARY = "workflow_scripts/dlbench"
SOURCE_S, EXCHANGE_S = 0.05, 0.1
QUICK = {"model": "lenet5", "batch_per_device": 8, "warmup_steps": 3, "steps": 20, "explain": True}
SLEEP = "tf.py_function(lambda v: (__import__('time').sleep({}), v)[1], [{}], {}.dtype)"


def slow_down(folder):
    """Have a source sleep before each batch, and an exchange before it begins."""
    for file, line, more in (
        (
            "pipelines.py",
            "        batches = batches.prefetch(",
            "        batches = batches.map(lambda inputs, targets: (inputs, tf.ensure_shape("
            f"{SLEEP.format(SOURCE_S, 'targets', 'targets')}, targets.shape)))\n",
        ),
        (
            "strategies/horovod.py",
            "        optimizer.apply(self._averaged(gradients), variables)",
            "        import tensorflow as tf\n"
            "        first = tf.convert_to_tensor(gradients[0])\n"
            f"        slow = {SLEEP.format(EXCHANGE_S, 'first', 'first')}\n"
            "        gradients = [tf.ensure_shape(slow, first.shape), *gradients[1:]]\n",
        ),
    ):
        path = folder / LIBRARY / "trainer/tensorflow" / file
        text = path.read_text()
        assert text.count(line) == 1
        path.write_text(text.replace(line, more + line))


def test_what_a_slow_source_and_a_slow_exchange_cost_is_told_by_probes(fresh):
    slow_down(fresh.folder)
    read = QUICK | {"name": "read", "dataset": "digits"}
    two = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    exchanged = QUICK | two | {"name": "exchanged", "dataset": "synthetic"}
    fresh.configure(matrix=[read, exchanged], figures=["account"])
    planned = fresh.scheduled()["train"]
    assert sum("-probe-" in run_id for run_id in planned) == len(planned) - 2 == 4 + 4
    fresh.succeed("report")

    parts = {(row["run_id"][:16], row["part"]): row for row in fresh.typed_rows("explanations")}
    costs = {key: row["step_time_s"] for key, row in parts.items()}
    reading = "lenet5-digits-b8"
    (exchanging,) = {name for name, _ in costs} - {reading}
    # Batches are made ready beside the step: what it waits is what they take beyond it.
    waited = SOURCE_S - costs[reading, "computation"] - costs[reading, "waits"]
    assert costs[reading, "input"] > 0.9 * waited
    assert costs[exchanging, "exchange"] > EXCHANGE_S
    # However busy the machine: no part that is not slowed takes as long.
    assert costs[exchanging, "exchange"] == max(
        cost for (name, _), cost in costs.items() if name == exchanging
    )
    for name in (reading, exchanging):
        shares = [row["share"] for (of, _), row in parts.items() if of == name]
        assert sum(shares) == pytest.approx(1)

    apart = [row["apart"] for row in fresh.typed_rows("runs")]
    assert sorted(map(str, apart)) == ["None"] * 2 + ["probe"] * 8
    for name in ("accounts", "coverage"):
        assert not any("-probe-" in row["run_id"] for row in fresh.typed_rows(name))
    page = (fresh.folder / "results/report.html").read_text()
    untold = "What a step is made of cannot be resolved."  # by one repeat
    assert f"<b>lenet5 digits batch 8, single on 1 device.</b> {untold}" in page
    assert fresh.scheduled() == {}

    # Without explain nothing is trained again, and the probes are no runs of the study.
    plain = [block | {"explain": False} for block in (read, exchanged)]
    fresh.configure(matrix=plain, figures=["account"])
    assert "train" not in fresh.scheduled()
