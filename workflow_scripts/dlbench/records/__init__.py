"""The record of a run, run.json: from its log, with what it was made from and whether to believe
it.

Imports images, study, log and common.
"""
