"""Helpers for all rooms: files, options, plugins, programs of the machine, text for people.

All its files may be imported from every room. It imports the standard library and dlbench.Error
only, for its files may enter every image.
"""
