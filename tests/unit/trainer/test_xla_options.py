"""jax/strategies: a flag is read from a message of Protocol Buffers, which jaxlib serializes."""

import sys
import types

import pytest

from dlbench.trainer.jax import strategies
from dlbench.trainer.jax.strategies import Base

# Field 186 is true, behind fields of all wire types, within two messages.
FLAGS = bytes([8, 1, 18, 1, 65, 25, *[0] * 8, 37, *[0] * 4, 0xD0, 0x0B, 1])
OPTIONS = bytes([26, len(FLAGS) + 2, 26, len(FLAGS), *FLAGS])


@pytest.fixture
def jaxlib(monkeypatch):
    """A function that makes jaxlib serialize some options."""

    def serialize(message):
        compiled = types.SimpleNamespace(SerializeAsString=lambda: message)
        client = types.SimpleNamespace(CompileOptions=lambda: compiled)
        monkeypatch.setitem(sys.modules, "jaxlib", types.SimpleNamespace(xla_client=client))

    return serialize


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (OPTIONS, True),
        (OPTIONS[:-1] + bytes([0]), False),
        (b"", None),
        (OPTIONS[:-1], None),  # cut off
        (bytes([26, 2, 24, 1]), None),  # a number where a message should be
        (bytes([31]), None),  # no wire type
        (bytes([26, 4, 26, 2, 0xD0]), None),
    ],
)
def test_the_flag_is_true_false_or_unknown(message, value, jaxlib):
    jaxlib(message)
    assert strategies.latency_hiding_scheduler() is value


def test_a_jaxlib_that_tells_nothing_leaves_it_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxlib", types.SimpleNamespace(xla_client=object()))
    assert strategies.latency_hiding_scheduler() is None
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    assert strategies.latency_hiding_scheduler() is None


def test_the_settings_of_a_run_on_gpus_have_it(jaxlib, monkeypatch):
    jaxlib(OPTIONS)
    monkeypatch.setenv("XLA_FLAGS", "--x")
    strategy = Base.__new__(Base)
    strategy.options = {}
    for strategy.on_gpus, value in ((True, True), (False, None)):
        assert strategy.settings().get("latency_hiding_scheduler") is value
