"""Two campaigns compared, combination by combination.

Imports what is below it; no other room imports it.
"""
