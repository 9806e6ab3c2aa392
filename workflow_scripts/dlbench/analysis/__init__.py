"""Statistics of finished runs: estimates, comparisons, speedups and drift between sessions.

Rows of tables come in and go out; run_tables makes those of a single run. Two campaigns are
compared, or one is checked against bounds, here too, up to the pages that show it. Other rooms
import every file. Imports pages, tables, records, study, log and common.
"""
