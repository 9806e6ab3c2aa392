"""The tables: their columns and units, and Parquet files of them.

Imports records, study, log and common.
"""
