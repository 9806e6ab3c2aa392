"""From records to tables, and from records to files that other programs read.

Other rooms import collect_runs, collect_baselines, export_runs and run_rows. Imports plan,
analysis, tables, records and rooms below.
"""
