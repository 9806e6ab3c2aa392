"""Pages: a title, one sentence and sections of text and tables, as text, Markdown or HTML.

Others import page.py (what a page is made of), formats.py (how it is written) and templates.py
(HTML templates that escape what they insert).
Imports common.
"""
