"""The collectives of strategies, one file each: see dlbench/trainer/tensorflow/exchanges."""
