"""The training log: its events, how they are written and read, and which fields they must have.

All its files may be imported from other rooms. It imports common and the standard library only,
for its files may enter every image.
"""
