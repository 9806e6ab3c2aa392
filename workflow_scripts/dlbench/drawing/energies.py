"""Which energy a figure draws: never two kinds in one, since what they contain differs."""

import pandas as pd

# {prefix of the columns: whose energy it is}. A figure draws the first that a study has.
KINDS = {"": "all GPUs", "node_": "the whole node", "host_": "processors and their memory"}
NO_ENERGY = "no energy was recorded: neither GPUs nor processors nor a meter measured it"


def kind_of(runs: pd.DataFrame) -> str | None:
    """The key of KINDS whose energy is drawn: the first that any run has; None: none has one."""
    return next((kind for kind in KINDS if runs[per_image(kind)].gt(0).any()), None)


def per_image(kind: str) -> str:
    """The column with the joules an item."""
    return f"{kind}energy_per_image_j"


def flagged(runs: pd.DataFrame) -> str:
    """As in `2 of 6: few readings`: how many runs have an energy of few readings; "" for none."""
    count = int(runs["energy_remark"].notna().sum())
    return f"{count} of {len(runs)}: few readings" if count else ""
