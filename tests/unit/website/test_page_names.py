"""page_names: names of files that no text can break."""

import re

import pytest

from dlbench.website import page_names

HOSTILE = ("../../etc/passwd", "a/b\\c", "CON", "\x00\n", "..", "", "ü" * 300, "<script>", "a.html")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_of_any_text_is_one_plain_file_name(text):
    name = page_names.file_name("machine", text, text)
    assert re.fullmatch(r"machine(-[a-z0-9]+)+\.html", name) and len(name) < 80


def test_texts_that_look_alike_have_different_names():
    texts = ("A 1", "a 1", "a-1", "a/1", "a  1")
    names = {page_names.file_name("study", text, text) for text in texts}
    assert len(names) == len(texts)


def test_a_name_does_not_depend_on_how_its_key_is_cut():
    assert page_names.anchor("a b", "c") != page_names.anchor("a", "b c")
