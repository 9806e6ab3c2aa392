"""Logs of other programs, read into our tables.

Importers are files found by their name. Imports what is below it; no other room imports it.
"""
