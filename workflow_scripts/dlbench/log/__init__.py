"""The training log: its events and their fields, how they are written, read and checked.

All its files may be imported from other rooms. It imports common and the standard library only,
for its files may enter every image.
"""
