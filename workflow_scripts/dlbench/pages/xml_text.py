"""An XML document as text."""

import re
from xml.etree import ElementTree

# XML has no other control characters, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def document(root: ElementTree.Element) -> str:
    """The document of an element, indented; characters that XML does not have are left out."""
    ElementTree.indent(root)
    text = _NOT_XML.sub("", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
