"""Clusters: the jobs of runs, Snakemake's profiles, and checks of a site before a campaign.

Programs and rules import its files; no other room does. It imports plan, starting, records, images,
schedulers, study and common.
"""
