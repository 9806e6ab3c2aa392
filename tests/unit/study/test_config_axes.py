"""config_axes: the schema's part on fields of a run follows from their declarations."""

import jsonschema
import pytest

from dlbench.run_fields.fields import DECLARED
from dlbench.study import config_axes

AXES = config_axes.axes()


def test_the_keys_are_the_fields_of_a_config_and_those_that_make_fields():
    fields = {n for n in DECLARED if DECLARED[n].in_config}
    assert set(AXES) == fields | {"global_batch", "parameters"}
    keys = list(AXES)
    assert keys.index("global_batch") == keys.index("batch_per_device") + 1


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("precision", ["float32"], ["float8", 1]),
        ("steps", [1, 10**9], [0, 1.5, "max", 10**9 + 1]),
        ("batch_per_device", [1, "max"], [0, "most"]),
        ("global_batch", [1], ["max"]),
        ("learning_rate", [0.1, 1], [0, "high"]),
        ("xla", [True], ["yes", 1]),
        ("node", ["n[1-8]"], ["n 1"]),
        ("strategy_options", [{"a": 1}], [{}, {"a": []}, "a=1"]),
    ],
)
def test_a_key_takes_one_value_or_a_list_and_refuses_what_is_not_declared(name, right, wrong):
    check = jsonschema.Draft202012Validator(AXES[name])
    assert all(check.is_valid(value) for value in (*right, right))
    assert not any(check.is_valid(value) for value in (*wrong, *([value] for value in wrong), []))
