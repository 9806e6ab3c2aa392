"""yaml_files: what is wrong in a file that a person wrote is said with file and line."""

import pytest

from dlbench import Error
from dlbench.study import yaml_files


@pytest.fixture
def read(tmp_path):
    def content_of(content):
        (tmp_path / "mine.yaml").write_bytes(content)
        return yaml_files.read(tmp_path / "mine.yaml")

    return content_of


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is twice in one mapping, first in line 1"),
        (b"a:\n  b: 1\n  c: {d: 1,\n    d: 2}\n", "line 4: the key 'd' is twice"),
        (b"10: a\n0xa: b\n", "line 2: the key 10 is twice"),
        (b"a:\n - b\n   c: 1\n", "line 3: no YAML: mapping values are not allowed here"),
        (b"a:\n\tb: 1\n", "; YAML is indented with spaces, not with tabs"),
        (b"a: 1\n---\nb: 2\n", "line 2: no YAML: expected a single document"),
        (b"a: !!python/object/apply:os.getcwd []\n", "line 1: no YAML: could not determine"),
        (b"a: 1\nb: x\0y\n", "line 2: no YAML: '\\x00' may not be in it"),
        (b"# caf\xe9\n", "line 1: expected text in UTF-8, found the byte 0xe9; is it Latin-1?"),
        ("a: 1\nb: ü\n".encode("utf-16"), "line 1: expected text in UTF-8, found the byte 0xff"),
        (b"a: 2026-13-45\n", "no YAML: month must be in 1..12"),
        (b"a: " + b"1" * 5000, "no YAML: Exceeds the limit"),
        (b"[" * 100_000, "nested too deep"),
        (b"- " * 5_000 + b"a\n", "nested too deep"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is twice in one mapping"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(read, content, words):
    with pytest.raises(Error) as error:
        read(content)
    assert "mine.yaml" in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_is_read_alike_whether_or_not_it_may_be_nested_too_deep_for_libyaml(
    read, monkeypatch
):
    content = b"a: &x [1, 1e3, 1.0e+3]\nb: *x\nc: {<<: {d: 0x1f}, e: no}\nf: 2026-01-01\ng: |\n x\n"
    values = read(content)
    assert values["c"] == {"d": 31, "e": False} and values["b"] == [1, "1e3", 1000.0]
    monkeypatch.setattr(yaml_files, "SAFE_DEPTH", 0)
    assert read(content) == values


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path):
    with pytest.raises(Error, match=r"absent\.yaml cannot be read: No such file"):
        yaml_files.read(tmp_path / "absent.yaml")
    with pytest.raises(Error, match="cannot be read: Is a directory"):
        yaml_files.read(tmp_path)


def test_a_key_may_take_the_place_of_one_that_is_merged(read):
    merged = read(b"a: &a {x: 1, y: 1}\nb: &b\n  <<: *a\n  x: 2\nc:\n  <<: *b\n  x: 3\n")
    assert merged["c"] == {"x": 3, "y": 1}


def test_json_is_read_as_json_and_an_empty_file_as_nothing(read):
    assert read(b'{\n\t"a": 1e-3, "b": "\\/"\n}') == {"a": 0.001, "b": "/"}
    assert read(b"") is None
    assert read(b"\xef\xbb\xbfa: 1\n") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "proposed"), [("1e-3", "1.0e-3"), ("2.5E6", "2.5e+6"), ("-1e+4", "-1.0e+4")]
)
def test_a_number_that_yaml_reads_as_text_is_hinted_at_as_it_reads_numbers(read, text, proposed):
    hint = f"; YAML reads {text} as text: write {proposed}"
    assert yaml_files.hint(text, "number") == yaml_files.hint(text, "integer") == hint
    assert read(f"a: [{text}, {proposed}]".encode()) == {"a": [text, float(text)]}
    # What YAML read as it was meant has no hint.
    assert yaml_files.hint("ten", "integer") == yaml_files.hint(5, "string") == ""
