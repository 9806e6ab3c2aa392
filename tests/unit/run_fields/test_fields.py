"""fields: all fields of a run are declared completely, and run ids never change."""

import pytest

from dlbench.common import plugins
from dlbench.run_fields.declaring import MODEL, READING, value_type
from dlbench.run_fields.fields import DECLARED, DEFAULTS, FIELDS
from dlbench.study.runs import Run
from dlbench.trainer import engine

# Values equal to these are in no id, so another default would give two kinds of runs one id.
FIRST_DEFAULTS = {
    "framework": "tensorflow", "precision": "float32", "mode": "train", "warmup_steps": 10,
    "evaluate": "auto", "optimizer": "sgd", "accumulate_steps": 1, "learning_rate": 0.01,
    "learning_rate_scaling": "none", "learning_rate_batch": 256, "learning_rate_warmup_steps": 0,
    "learning_rate_decay": "none", "augment": True, "cache": "auto", "input": "auto",
    "page_cache": "as_found", "seed": 1, "nodes": 1, "devices_per_node": 1,
    "threads_per_device": 1, "strategy": "single", "launcher": "none", "runtime": "bare",
    "copies_per_node": 1, "environment": "train", "trainer": "dlbench", "repeat": 1,
    "compile_mode": "model",
}  # fmt: skip


def test_defaults_never_change_between_releases():
    others = {name: DEFAULTS[name] for name in DEFAULTS if name not in FIRST_DEFAULTS}
    assert {name: DEFAULTS[name] for name in FIRST_DEFAULTS} == FIRST_DEFAULTS
    assert all(value in (None, "", 0, False) for value in others.values()), others


def test_a_run_has_the_declared_fields_and_no_other():
    assert list(Run.__dataclass_fields__) == list(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_declared_in_full(name):
    declared, kind = DECLARED[name], value_type(FIELDS[name])
    assert declared.meaning and declared.part in ("", MODEL, READING)
    assert (kind is bool) or not declared.switch
    assert "{}" in declared.label or not declared.label
    if declared.choices:
        assert DEFAULTS[name] in ("", *declared.choices)
    if kind in (int, float) and declared.in_config:
        assert (declared.minimum is None) != (declared.above is None)
    if declared.folder:
        assert plugins.names(engine.plugin_kind("tensorflow", declared.folder))
    assert set(declared.frameworks) <= set(engine.names())
