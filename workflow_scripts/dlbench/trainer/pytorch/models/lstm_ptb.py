"""The small LSTM language model, as in trainer/keras/models/lstm_ptb.py.

Layers have one bias a gate, as Keras has them:
- S. Hochreiter and J. Schmidhuber (1997). Long short-term memory. Neural Computation 9(8).
- torch.nn.LSTM has two biases a gate, of which only the sum matters: here the second stays zero and
  is not a parameter.
- Under autocast on a CPU, PyTorch 2.15 takes oneDNN's LSTM whether or not the CPU has AVX-512, and
  fails without: "could not create a primitive descriptor". Cast to the dtype of autocast outside of
  it, PyTorch chooses by the CPU.
- Initial recurrent weights are orthogonal; initial biases are zero, those of the forget gates one:
  R. Jozefowicz, W. Zaremba and I. Sutskever (2015). An empirical exploration of recurrent network
  architectures. ICML, section 2.
"""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import layers

CONSTANTS_OF = "keras/models"


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> nn.Module:
    units = constants["UNITS"]
    return nn.Sequential(
        layers.layer(nn.Embedding, classes, units, initializer=_uniform),
        LSTM(units, units, depth=2),
        layers.dense(units, classes),
    )


def _uniform(weight):
    nn.init.uniform_(weight, -0.05, 0.05)


class LSTM(nn.LSTM):
    """Stacked layers, from (batch, tokens, inputs) to (batch, tokens, units).

    The state is zero before each window.
    """

    def __init__(self, inputs: int, units: int, depth: int):
        super().__init__(inputs, units, depth, batch_first=True)
        for number in range(depth):
            of_states = f"bias_hh_l{number}"
            delattr(self, of_states)
            self.register_buffer(of_states, torch.zeros(4 * units), persistent=False)
            of_inputs = getattr(self, f"bias_ih_l{number}")
            layers.glorot_uniform(getattr(self, f"weight_ih_l{number}"))
            nn.init.orthogonal_(getattr(self, f"weight_hh_l{number}"))
            with torch.no_grad():
                of_inputs.zero_()[units : 2 * units] = 1  # gates: input, forget, cell, output
        self._init_flat_weights()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = self.weight_ih_l0.dtype  # a strategy may cast weights, but not buffers
        for number in range(self.num_layers):
            of_states = f"bias_hh_l{number}"
            if getattr(self, of_states).dtype != dtype:
                setattr(self, of_states, getattr(self, of_states).to(dtype))
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            return self._forward_cast(x, torch.get_autocast_dtype("cpu"))
        return super().forward(x)[0]

    def _forward_cast(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        x = x.to(dtype)
        state = x.new_zeros(self.num_layers, len(x), self.hidden_size)
        weights = [weight.to(dtype) for weight in self._flat_weights]
        how = True, self.num_layers, 0.0, self.training, False, True  # with biases, batch first
        with torch.autocast("cpu", enabled=False):
            return torch.lstm(x, [state, state], weights, *how)[0]
