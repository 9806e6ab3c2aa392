"""Images of the trainer's environments: made, described, and brought to runtimes.

Runtimes are files found by their name. Imports study and common.
"""
