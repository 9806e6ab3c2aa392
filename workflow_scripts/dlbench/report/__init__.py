"""The report: one HTML page of a study.

Imports what is below it; no other room imports it.
"""
