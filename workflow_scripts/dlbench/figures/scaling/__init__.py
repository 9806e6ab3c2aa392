"""How throughput grows with devices, and what bounds it."""
