"""JSON as people write it is read; what is broken is pointed at by line and column."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sd_scripts.errors import UserError
from sd_scripts.options.lenient_json import parse, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"a": 1, // one\n "b": 2, # two\n /* three\n lines */ "c": [1, 2,],}', {"a": 1, "b": 2, "c": [1, 2]}),
        ('{"a": "http://x#y /* z */"}', {"a": "http://x#y /* z */"}),
        ("{'a': 'it is \"b\"'}", {"a": 'it is "b"'}),
        ('{"a": True, "b": False, "c": None, "d": undefined,}', {"a": True, "b": False, "c": None, "d": None}),
        ('[+1, .5, 1., -2e-3, "\\u00e9\\n",]', [1, 0.5, 1.0, -0.002, "é\n"]),
        ('["\\ud83d\\ude00",]', ["😀"]),
        ('["\\ud83d"]', ["\ufffd"]),
        ("// nothing but\n{}", {}),
        ("[Infinity, -Infinity,]", [math.inf, -math.inf]),
    ],
)
def test_what_is_read(text, content):
    assert parse(text, "x.json")[0] == content


def test_nan_is_read():
    assert math.isnan(parse("[NaN]", "x")[0][0])
    assert math.isnan(parse("[NaN,]", "x")[0][0])


@pytest.mark.parametrize("tail", ["}", ",}"])
def test_the_last_of_two_equal_keys_counts_and_is_named(tail):
    assert parse('{"a": 1, "b": 2, "a": 3' + tail, "x") == ({"a": 3, "b": 2}, ("a",))


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "a comma or } is missing"),
        ('{"a" 1}', 1, 6, "colon"),
        ('{"a": }', 1, 7, "a value is missing"),
        ('{"a": abc}', 1, 7, "abc is no value"),
        ('{"a": 1', 1, 8, "begins in line 1"),
        ('{"a": [1, 2\n}', 2, 1, "a comma or ] is missing"),
        ('{"a": "x\n}', 1, 7, "not closed"),
        ('{"a": "C:\\data"}', 1, 10, "\\d is no escape"),
        ("{a: 1}", 1, 2, "a key in quotes"),
        ('{"a": 1} x', 1, 10, "nothing may follow"),
        ('{"a": 1 /* b', 1, 9, "not closed with */"),
        ("[" * 100_000, 1, 66, "nested deeper"),
        ("[" + "9" * 5000 + "]", 1, 2, "too many digits"),
    ],
)
def test_what_is_broken(text, line, column, words):
    with pytest.raises(UserError) as failure:
        parse(text, "x.json")
    assert f"x.json: not valid JSON: line {line}, column {column}: " in str(failure.value)
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings_with_and_without_mark(tmp_path, encoding):
    file = tmp_path / "桌面.json"
    file.write_bytes('{"a": "桌面 é",}'.encode(encoding))
    assert read_json(file) == ({"a": "桌面 é"}, ())


@pytest.mark.parametrize("data", ['{"a": "é"}'.encode("latin-1"), '{"a": 1}'.encode("utf-16-le"), b"\xff\xfe{"])
def test_other_encodings_are_named(tmp_path, data):
    file = tmp_path / "a.json"
    file.write_bytes(data)
    with pytest.raises(UserError, match="save it again as UTF-8"):
        read_json(file)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(UserError):
            read_json(path)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_every_json_is_read_as_json_reads_it(value):
    text = json.dumps(value)
    expected = json.loads(text)
    assert parse(text, "x")[0] == expected
    assert parse(text + " // by the careful reader", "x")[0] == expected


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]",:\'\\/*#\n 01eE+-.utrfalsenN"'))
def test_any_text_is_read_or_refused(text):
    try:
        parse(text, "x")
    except UserError as failure:
        assert "line" in str(failure)
