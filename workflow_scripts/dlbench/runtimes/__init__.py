"""Runtimes, one file each: where the trainer runs, on bare metal or in a container.

A runtime file defines:
    command(run, trainer): the command line, a list of strings, that runs `trainer` inside.
    directive_image(run): the image for Snakemake's container directive, or None where
        the command line above is what enters the container.
    MARKED: whether the marker file of our images must be there (True) or must not (False).
Nothing here starts anything.
"""
