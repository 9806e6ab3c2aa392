"""How a study stands, what is wrong with it, and what is to be forgotten.

Imports what is below it; no other room imports it.
"""
