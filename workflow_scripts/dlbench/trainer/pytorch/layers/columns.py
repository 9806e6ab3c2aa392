"""Branches of layers with a common input, as in the modules of Inception."""

from collections.abc import Iterable

import torch
from torch import nn


class Branches(nn.Module):
    """Concatenates the output channels of all branches."""

    def __init__(self, *columns: Iterable[nn.Module]):
        super().__init__()
        self.columns = nn.ModuleList(nn.Sequential(*column) for column in columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([column(x) for column in self.columns], 1)
