"""Pages of sections and tables, as text, Markdown or HTML.

Imports analysis, study and common.
"""
