"""Reports as HTML: one page of a study, and a website of a history, a folder of pages

build_report.py gathers what the page says and writes it; build_site.py writes the website.
Templates, styles and scripts lie beside them.
Imports history, pages, drawing, results and rooms below; command imports it.
"""
