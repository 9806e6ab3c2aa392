"""Columns of layers that all take the same maps, as in the modules of Inception."""

from collections.abc import Iterable

import torch
from torch import nn


class Branches(nn.Module):
    """The maps of all columns, one column after the other."""

    def __init__(self, *columns: Iterable[nn.Module]):
        super().__init__()
        self.columns = nn.ModuleList(nn.Sequential(*column) for column in columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([column(x) for column in self.columns], 1)
