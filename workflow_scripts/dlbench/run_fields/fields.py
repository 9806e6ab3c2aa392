"""All fields of a run, in the order in which they are declared."""

import dataclasses
from dataclasses import dataclass

from dlbench.run_fields.declaring import Declaration, declared
from dlbench.run_fields.learning import Learning
from dlbench.run_fields.place import Place
from dlbench.run_fields.reading import Reading
from dlbench.run_fields.work import Work


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RunFields(Place, Reading, Learning, Work):
    """All fields of a run; those of the last base class come first."""

    repeat: int = declared(
        1,
        "from 1; runs that differ only in it (and in the seed) are one combination",
        bits=32,
        changes_memory=False,
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        in_config=False,
    )
    sentinel: int = declared(
        0,
        "Number of the session, from 1, in which a finished run was repeated; 0: no sentinel.",
        bits=32,
        changes_memory=False,
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        only_recorded=True,
        in_config=False,
    )
    probe: str = declared(
        "",
        "A run of no statistics: with its items (stored), or with made-up ones of their shape, on"
        " the devices (synthetic) or copied there for each step (copied).",
        choices=("stored", "synthetic", "copied"),
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        in_config=False,
    )


FIELDS = {field.name: field for field in dataclasses.fields(RunFields)}
DECLARED: dict[str, Declaration] = {name: f.metadata["declared"] for name, f in FIELDS.items()}
DEFAULTS = {n: f.default for n, f in FIELDS.items() if f.default is not dataclasses.MISSING}
