"""The tables: their names, columns and units, Parquet and CSV files of them, pages that list them.

Other rooms import every file; cells loads no library. Imports records, study, log and common.
"""
