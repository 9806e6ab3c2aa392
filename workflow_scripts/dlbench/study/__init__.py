"""What is to be run: the config, its schema, the runs of a matrix, repeats and gates.

Imports the trainer's rooms, launchers and common.
"""
