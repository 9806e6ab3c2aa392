"""Clusters: the jobs of runs, Snakemake's profiles, and checks of a site before a campaign.

Programs, rules and command import its files. It imports plan, starting, records, images,
schedulers, study and common.
"""
