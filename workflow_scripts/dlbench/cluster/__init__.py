"""Clusters: jobs, profiles of schedulers, and a look at a site before anything is trained.

Imports what is below it; no other room imports it.
"""
