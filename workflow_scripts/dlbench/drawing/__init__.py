"""What figures share: series of runs, charts of lines and of rows, styles, file formats.

Others may import every file. Imports analysis, tables, study, log and common.
"""
