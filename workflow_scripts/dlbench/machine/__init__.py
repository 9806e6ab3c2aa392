"""What a process runs on: host, CPUs, GPUs, limits, software, and what is kept secret.

Imports common. Standard library only: its files may enter every image.
"""
