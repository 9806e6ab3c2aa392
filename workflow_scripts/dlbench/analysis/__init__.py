"""Statistics of finished runs: estimates, comparisons, speedups, drift.

Imports tables, records, study and common.
"""
