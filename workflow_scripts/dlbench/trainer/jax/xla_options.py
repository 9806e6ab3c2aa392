"""Flags of XLA as the installed jaxlib sets them, with those of XLA_FLAGS.

jaxlib has no call that tells them. But the options that it gives a compiler have all, as a message
of Protocol Buffers, and the numbers of a message's fields never change. Sources: OpenXLA,
xla/pjrt/proto/compile_options.proto and xla/xla.proto.
"""

from collections.abc import Sequence

from dlbench.common import protobuf

# executable_build_options of CompileOptionsProto, their debug_options, and the flag of these.
LATENCY_HIDING_SCHEDULER = (3, 3, 186)


def latency_hiding_scheduler() -> bool | None:
    """Whether xla_gpu_enable_latency_hiding_scheduler is set; None if jaxlib does not tell.

    The scheduler has devices compute while they exchange. Without the flag XLA uses it only where
    jax_optimization_level or jax_exec_time_optimization_effort asks for it.
    """
    try:
        from jaxlib import xla_client

        value = field(xla_client.CompileOptions().SerializeAsString(), LATENCY_HIDING_SCHEDULER)
    except Exception:  # of any version of jaxlib, whose Python interface is internal
        return None
    return bool(value) if isinstance(value, int) else None


def field(message: bytes, path: Sequence[int]) -> int | bytes | None:
    """A field of a message, or of messages in it; None if it is not set.

    Args:
        path: numbers of the fields that lead to it.

    >>> field(bytes([8, 150, 1]), [1])
    150
    >>> field(bytes([26, 2, 16, 1]), [3, 2])
    1

    Raises:
        ValueError, IndexError: this is no message.
    """
    value: int | bytes | None = message
    for number in path:
        if not isinstance(value, bytes):
            raise ValueError(f"field {number} of {path}: expected a message, found {value!r}")
        value = next(
            (content for found, content in protobuf.fields(value) if found == number), None
        )
        if value is None:
            return None
    return value
