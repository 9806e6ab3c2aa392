"""The training log: its events, how they are read and what they must say.

Imports common. Standard library only: its files may enter every image.
"""
