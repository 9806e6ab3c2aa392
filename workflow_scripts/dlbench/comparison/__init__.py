"""Two campaigns compared, combination by combination; one campaign checked against bounds.

campaigns.py reads them, compare_runs.py compares them, comparison_page.py and plain.py show what
came out; bounds.py is the check. Imports pages, analysis and rooms below; command imports it.
"""
