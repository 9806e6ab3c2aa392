"""An archive of a study: written, verified, and results derived from it again.

Imports what is below it; no other room imports it.
"""
