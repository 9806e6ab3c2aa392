"""strategies/horovod: when gradients are reduced, by device and options."""

import pytest

from dlbench.common import options, plugins


@pytest.mark.parametrize(
    ("text", "on_cpus", "on_gpus"),
    [
        ("", 1, 0),
        ("gradient_groups=3", 3, 3),
        ("overlap=no", 1, 1),
        ("overlap=no,gradient_groups=0", 0, 0),
        ("overlap=yes", 0, 0),
        ("overlap=yes,gradient_groups=3", 0, 0),
    ],
)
def test_gradients_wait_for_the_backward_pass_on_cpus_and_overlap_with_it_on_gpus(
    text, on_cpus, on_gpus
):
    horovod = plugins.load("tensorflow/strategies", "horovod")
    chosen = options.parse("strategy", "horovod", horovod.Strategy.OPTIONS, text)
    assert horovod.gradient_groups(chosen, on_gpus=False) == on_cpus
    assert horovod.gradient_groups(chosen, on_gpus=True) == on_gpus
