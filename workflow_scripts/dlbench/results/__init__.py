"""From records to tables, and tables in the formats of others.

Imports plan, analysis, tables, records and below.
"""
