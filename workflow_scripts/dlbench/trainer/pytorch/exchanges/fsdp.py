"""As under ddp; a step gathers weights and reduce-scatters gradients.

Either moves half as many bytes as an all-reduce, by which the scaling that is expected is computed.
"""

from dlbench.trainer.pytorch.exchanges import ddp

all_reduce, all_gather = ddp.all_reduce, ddp.all_gather
reduce_scatter, sendrecv = ddp.reduce_scatter, ddp.sendrecv
