"""The machine that a process runs on: host, CPUs, GPUs, limits and software; secrets left out.

All its files may be imported from other rooms. It imports common and the standard library only
(and nvidia-ml-py for GPUs, if installed), for its files may enter every image.
"""
