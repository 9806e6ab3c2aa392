"""Forms in which a user's pictures may be packed into larger files, one file each.

The file's name is the key of data.images.NAME that gives the place. `given` is what the config says
there, with absolute paths. A file defines:
    files(given): {split: paths}; none is opened, so that a start is quick.
    index(given, place): the Index of the items. `place` is an empty folder for what must be
        unpacked to be read in any order; None: the items will not be read.
All raise IndexingError if files or labels are not as expected.
"""
