"""Logs of tf_cnn_benchmarks."""
