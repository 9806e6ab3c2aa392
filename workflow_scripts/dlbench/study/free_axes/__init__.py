"""Axes whose names a study chooses itself: variables of the environment, and parameters of other
programs, with the formulas that are made from these.

The room imports common, machine and run_fields only.
"""
