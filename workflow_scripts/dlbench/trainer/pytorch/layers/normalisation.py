"""Batch normalisation with the arguments of Keras's layer.

- S. Ioffe and C. Szegedy (2015). Batch normalization: accelerating deep network
  training by reducing internal covariate shift. ICML, algorithms 1 and 2.
- The operation is PyTorch's own. Its moving variance has Bessel's correction, as in algorithm 2;
  Keras's has not. Training does not use it, and in an evaluation the difference is small: n against
  n - 1 for n values of a map in a batch.
"""

from torch import nn


class BatchNorm2d(nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with the arguments of Keras's layer.

    Under DistributedDataParallel each device normalises its own shard of the batch.

    Args:
        epsilon: added to the variance.
        momentum: the weight of the old moving statistics; torch.nn's momentum is 1 - this.
        scale: whether the outputs have a learned factor.
    """

    def __init__(self, maps: int, epsilon: float, momentum: float, scale: bool = True):
        super().__init__(maps, eps=epsilon, momentum=1 - momentum)
        self.register_buffer("num_batches_tracked", None)  # averages of other kinds need it
        if not scale:
            self.register_parameter("weight", None)
