"""Statistics of finished runs: estimates, comparisons, speedups and drift between sessions.

Rows of tables come in and go out; run_tables makes those of a single run. Other rooms import every
file. Imports tables, records, study, log and common.
"""
