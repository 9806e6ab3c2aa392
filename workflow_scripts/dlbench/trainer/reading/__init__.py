"""Items of converted datasets: what all frameworks share, and a reader for JAX and PyTorch."""
