"""laws: parameters come back from throughputs that follow the law."""

import numpy as np
import pytest

from dlbench.analysis import laws

DEVICES = np.repeat([1, 2, 4, 8, 16, 32], 3)


@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.0), (0.05, 0.001)])
def test_the_parameters_of_both_laws_come_back(alpha, beta):
    loss = alpha * (DEVICES - 1) + beta * DEVICES * (DEVICES - 1)
    rates = 3000 * DEVICES / (1 + loss)
    assert [e.value for e in laws.usl(DEVICES, rates)] == pytest.approx([alpha, beta], abs=1e-6)
    if not beta:
        assert laws.amdahl(DEVICES, rates).value == pytest.approx(alpha, abs=1e-6)
