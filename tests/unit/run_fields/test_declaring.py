"""declaring: a field has what is declared of it."""

import dataclasses

import pytest

from dlbench.run_fields import declaring


@dataclasses.dataclass
class Two:
    size: int | None = declaring.declared(None, "How large.", minimum=1, unit="m")
    name: str = declaring.declared("a", "What it is called.", choices=("a", "b"))


def test_a_field_has_its_default_and_what_is_declared_of_it():
    size, name = dataclasses.fields(Two)
    assert (size.default, name.default) == (None, "a") == (Two().size, Two().name)
    assert size.metadata["declared"] == declaring.Declaration("How large.", minimum=1, unit="m")


def test_the_kind_of_a_field_that_may_be_left_out_is_that_of_its_values():
    assert [declaring.value_type(field) for field in dataclasses.fields(Two)] == [int, str]


def test_what_cannot_be_declared_is_refused():
    with pytest.raises(TypeError, match="colour"):
        declaring.declared(0, "A field.", colour="red")
