"""All-reduce among the devices of one process, as MirroredStrategy does it."""

from dlbench.trainer.tensorflow.exchanges import _replicas

all_reduce, all_gather = _replicas.all_reduce, _replicas.all_gather
LACKS = _replicas.LACKS
