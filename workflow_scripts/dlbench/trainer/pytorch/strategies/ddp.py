"""DistributedDataParallel: one process a device, gradients averaged while they are computed.

- S. Li et al. (2020). PyTorch Distributed: experiences on accelerating data parallel training.
  VLDB 13(12), arXiv:2006.15704.
- Batch normalisation is local to each device, and so are its moving statistics; evaluations use
  those of rank 0.

Options, PyTorch's own name in brackets:
    bucket_mib  size of a bucket of gradients that are reduced together [bucket_cap_mb, 25]
"""

import warnings
from contextlib import AbstractContextManager
from typing import Any

from dlbench.trainer.pytorch.processes import DistributedBase
from dlbench.trainer.pytorch.strategies import Module


class Strategy(DistributedBase):
    OPTIONS = {"bucket_mib": 25}

    def parallelize(self, model: Module) -> Module:
        from torch.nn.parallel import DistributedDataParallel

        with warnings.catch_warnings():  # the name of the argument is older than PyTorch 2.15
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")
            return DistributedDataParallel(
                model,
                device_ids=[self.device] if self.on_gpus else None,
                broadcast_buffers=False,
                bucket_cap_mb=self.options["bucket_mib"],
                gradient_as_bucket_view=True,
            )

    def gradient_sync(self, model: Module, enabled: bool) -> AbstractContextManager[Any]:
        return super().gradient_sync(model, enabled) if enabled else model.no_sync()
