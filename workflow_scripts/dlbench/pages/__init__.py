"""Pages: a title, one sentence and sections of text and tables, as text, Markdown or HTML.

Others import formats.py (what a page is made of, how it is written) and templates.py (HTML
templates that escape what they insert).
Imports common.
"""
