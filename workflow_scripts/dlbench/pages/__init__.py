"""Pages: a title, one sentence and sections of text and tables, as text, Markdown or HTML.

Others import page.py (what a page is made of), page_text.py and page_html.py (its formats), and
templates.py (HTML templates that escape what they insert).
Imports common.
"""
