"""comparing: parameters of other programs, and variables of the environment."""

from types import SimpleNamespace

from dlbench.analysis import comparisons
from dlbench.study.runs import FIELDS, Run

RUN = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 50}


def repeats(rates, **fields):
    """Rows of the table of runs, with the runs that they are of."""
    runs = [Run(**RUN | fields, repeat=repeat) for repeat in range(1, len(rates) + 1)]
    return [(run, row(run, rate)) for run, rate in zip(runs, rates, strict=True)]


def row(run, rate):
    return {
        **{name: getattr(run, name) for name in FIELDS},
        "run_id": run.id, "status": "ok", "images_per_second": rate, "device_kind": "cpu",
        "device_model": "Xeon", "site": "here", "steps_measured": 50, "framework_version": "2.18",
        "software_sha256": run.variables or "none",
    }  # fmt: skip


def compared(runs, field, base):
    study = SimpleNamespace(
        name="test",
        without_probes=[run for run, _ in runs],
        compare=[{"field": field, "base": base}],
        equivalence_margin=0.01,
    )
    return comparisons.rows(study, [row for _, row in runs])


def test_a_parameter_is_compared_where_all_others_agree():
    theirs = {"trainer": "theirs"}
    runs = [
        *repeats([100, 101, 102], trainer_parameters="micro_batch=1 tensor_parallel=1", **theirs),
        *repeats([90, 91, 92], trainer_parameters="micro_batch=1 tensor_parallel=2", **theirs),
        *repeats([200, 201, 202], trainer_parameters="micro_batch=2 tensor_parallel=1", **theirs),
        *repeats([180, 181, 182], trainer_parameters="micro_batch=2 tensor_parallel=8", **theirs),
    ]
    made = compared(runs, "parameters.tensor_parallel", 1)
    assert [(r["condition"], r["base"], r["verdict"]) for r in made] == [
        ("2", "1", "slower"),
        ("8", "1", "slower"),
    ]
    assert [r["trainer_parameters"] for r in made] == [
        "micro_batch=1 tensor_parallel=2",
        "micro_batch=2 tensor_parallel=8",
    ]


def test_software_that_differs_by_the_variables_of_a_run_is_meant_to():
    runs = [*repeats([100, 101, 102]), *repeats([90, 91, 92], variables="NCCL_ALGO=Ring")]
    (made,) = compared(runs, "variables", "")
    assert (made["condition"], made["base"]) == ("NCCL_ALGO=Ring", "defaults")
    assert made["base_flags"] == ""
