"""Studies of one small block, for the tests of what a config may say."""

from pathlib import Path

import pytest

from dlbench.study import config
from dlbench.study.config_schema import ConfigError
from support.studies.site_facts import SITE, UNDISTURBED

BLOCK = {"name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}
STUDY = config.read(Path(__file__).parents[3] / "config.yaml") | {
    **UNDISTURBED, "study": "test", "sentinels": "none", "seed": 1, "repeats": 1,
    "time_limit_s": 60, "site": SITE, "matrix": [BLOCK | {"steps": 5}], "figures": ["scaling"],
}  # fmt: skip


def study(*blocks, **changes):
    return config.study(STUDY | ({"matrix": list(blocks)} if blocks else {}) | changes)


def refused(*blocks, **changes):
    with pytest.raises(ConfigError) as error:
        study(*blocks, **changes)
    return str(error.value)
