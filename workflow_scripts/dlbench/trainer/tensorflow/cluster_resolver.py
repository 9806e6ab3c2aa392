"""The cluster of a run as a TensorFlow object."""

from typing import Any

from dlbench.trainer.cluster import Cluster


def resolver(cluster: Cluster) -> Any:
    """TensorFlow's ClusterResolver for a cluster."""
    import tensorflow as tf

    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses),
        task_type=cluster.job,
        task_id=cluster.task,
        rpc_layer="grpc",
    )
