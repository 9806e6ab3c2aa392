"""The website: static pages of a history, a folder to open or to publish

build_site.py writes the folder, site_data.py reads what it shows. Pages are made of pages/page.py
and written with site.html.jinja.
Imports history, pages and rooms below; command imports it.
"""
