"""run_fields: a field has what is declared of it, all are declared in full, ids never change."""

import dataclasses

import pytest

from dlbench.common import plugins, run_fields
from dlbench.common.run_fields import DECLARED, DEFAULTS, FIELDS, MODEL, READING, value_type
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
    "checkpoint_writer": "numpy",
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


@dataclasses.dataclass
class Two:
    size: int | None = run_fields.declared(None, "How large.", minimum=1, unit="m")
    name: str = run_fields.declared("a", "What it is called.", choices=("a", "b"))


def test_a_field_has_its_default_and_what_is_declared_of_it():
    size, name = dataclasses.fields(Two)
    assert (size.default, name.default) == (None, "a") == (Two().size, Two().name)
    assert size.metadata["declared"] == run_fields.Declaration("How large.", minimum=1, unit="m")


def test_the_kind_of_a_field_that_may_be_left_out_is_that_of_its_values():
    assert [run_fields.value_type(field) for field in dataclasses.fields(Two)] == [int, str]


def test_what_cannot_be_declared_is_refused():
    with pytest.raises(TypeError, match="colour"):
        run_fields.declared(0, "A field.", colour="red")
