"""All-reduce among processes, as MultiWorkerMirroredStrategy does it, with the run's options."""

from dlbench.trainer.tensorflow.exchanges import _replicas

all_reduce, all_gather = _replicas.all_reduce, _replicas.all_gather
LACKS = _replicas.LACKS
