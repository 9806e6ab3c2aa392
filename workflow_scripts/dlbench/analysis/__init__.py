"""Statistics of finished runs: estimates, comparisons, speedups and drift between sessions.

Rows of tables come in and go out. Other rooms import every file. Imports tables, records, study,
log and common.
"""
