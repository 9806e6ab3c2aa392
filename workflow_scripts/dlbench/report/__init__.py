"""The report: one HTML page of a study.

build_report.py gathers what it says, report_html.py writes it with the templates beside it.
Imports pages, results and rooms below; command imports it.
"""
