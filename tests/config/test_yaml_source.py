"""YAML with positions: what is ambiguous is refused by name, whatever the text nothing but
ConfigError escapes."""

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.config.yaml_source import MAX_ANCHORS, MAX_BYTES, MAX_NODES, Document, compose, fill, plain_value
from frontier.errors import Complaint, ConfigError


def parse_yaml(text: str, file: str) -> Document:
    root, document = compose(text, file)
    fill(document, root)
    if document.complaints:
        raise ConfigError(file, tuple(document.complaints))
    return document


def place(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def complaints(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    return str(caught.value)


def outcome(text: str) -> tuple[dict[str, object] | None, tuple[Complaint, ...]]:
    """The tree, or the complaints; anything else that escapes fails the test."""
    try:
        return parse_yaml(text, "f.yaml").tree, ()
    except ConfigError as error:
        return None, error.complaints


def test_every_key_and_value_knows_its_line_and_column() -> None:
    doc = parse_yaml("a: 1\nb:\n  - x\n  - {c: 2.50}\n", "f.yaml")
    assert {"a": 1, "b": ["x", {"c": 2.5}]} == doc.tree
    assert (4, 6) == place(doc.keys[("b", 1, "c")])
    assert (4, 9) == place(doc.nodes[("b", 1, "c")].start_mark)
    assert "2.50" == doc.text(("b", 1, "c"))


def test_a_complaint_about_something_missing_stands_at_the_nearest_place_around_it() -> None:
    complaint = parse_yaml("a: 1\nb:\n  c: 2\n", "f.yaml").complaint(("b", "d", 3), "wrong", "fix it")
    assert (3, 3, "  c: 2") == (complaint.line, complaint.column, complaint.source_line)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1_000", 1000),
        ("1.5", 1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1.5e+3", 1500.0),
        ("1024/256", "1024/256"),
        ("1..128", "1..128"),
        ("500ms", "500ms"),
        ("1%", "1%"),
        ("2026-11-20", "2026-11-20"),
        ("y", "y"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("$3/gpu/h", "$3/gpu/h"),
    ],
)
def test_an_unambiguous_scalar_is_read_as_both_yaml_versions_read_it(text: str, value: object) -> None:
    tree = parse_yaml(f"a: {text}\n", "f.yaml").tree
    assert value == tree["a"]
    assert type(value) is type(tree["a"])


def test_a_quoted_scalar_is_text_whatever_it_looks_like() -> None:
    tree = parse_yaml("a: 'yes'\nb: \"010\"\nc: '1e3'\nd: '1:30'\ne: '.nan'\n", "f.yaml").tree
    assert {"a": "yes", "b": "010", "c": "1e3", "d": "1:30", "e": ".nan"} == tree


REFUSED = [
    ("a: yes", "1:4: yes is a boolean to some YAML readers and text to others", 'write true, or "yes" for text'),
    ("a: Off", "1:4: Off is a boolean to some YAML readers and text to others", 'write false, or "Off" for text'),
    ("a: True", "1:4: True is a boolean to some YAML readers and text to others", 'write true, or "True" for text'),
    ("a: 010", "1:4: 010 is octal or hexadecimal to some YAML readers", 'write 10, or "010" for text'),
    (
        "a: 0x1F",
        "1:4: 0x1F is octal or hexadecimal to some YAML readers",
        'write the number in decimal, or "0x1F" for text',
    ),
    (
        "a: 0o17",
        "1:4: 0o17 is octal or hexadecimal to some YAML readers",
        'write the number in decimal, or "0o17" for text',
    ),
    (
        "a: 1:30",
        "1:4: 1:30 is a base-60 number to some YAML readers",
        'write a duration as 1min30s, or "1:30" for text',
    ),
    ("a: 1e3", "1:4: 1e3 is text to some YAML readers and a number to others", 'write 1000, or "1e3"'),
    ("a: 2.5e-3", None, None),
    ("a: 25E4", "1:4: 25E4 is text to some YAML readers and a number to others", 'write 250000, or "25E4"'),
    ("a: 2e-3", "1:4: 2e-3 is text to some YAML readers and a number to others", 'write 0.002, or "2e-3"'),
    ("a: 1e99", "1:4: 1e99 is text to some YAML readers and a number to others", 'write the number out, or "1e99"'),
    ("a: .nan", "1:4: .nan is not a number that can be used here", "write a finite number, or leave the key out"),
    ("a: -.inf", "1:4: -.inf is not a number that can be used here", "write a finite number, or leave the key out"),
    ("a: 12345678901234567890", "1:4: 12345678901234567890... has more than 18 digits", "write a smaller number"),
    ("a: 1.0e+400", "1:4: 1.0e+400 is too large for a number", "write a smaller number"),
    ("a: 1\nb: 2\na: 3", "3:1: 'a' is given twice; the first is on line 1", "remove one of them"),
    ("a: {b: 1, b: 2}", "1:11: 'b' is given twice; the first is on line 1", "remove one of them"),
    (
        "a: !!python/object:os.system x",
        "1:4: the tag !!python/object:os.system is not used here",
        "remove it; quote a value that is text",
    ),
    ("a: !!int 3", "1:4: the tag !!int is not used here", "remove it; quote a value that is text"),
    ("<<: {a: 1}", "1:1: merge keys (<<) are not used here", "a deployment inherits the top-level keys"),
    ("a: *b", "1:4: *b refers to nothing: no &b comes before it", "write the value out"),
    ("a: &b [*b]", "1:8: *b stands inside &b itself", "write the value out"),
    ("a:\n\tb: 1", "2:1: a tab stands where spaces must", "indent with spaces"),
    ("a: [1, 2\nb: 3", "1:4: a list opened with [ is not closed", "close it with ]"),
    ("a: {b: 1\nc: 3", "1:4: a mapping opened with { is not closed", "close it with }"),
    ("a: 'x", "1:4: a quote is opened and never closed", "close it"),
    ("a: b: c", "1:5: a ':' stands where no key can", "check the indentation, or quote the text"),
    ("a: @x", "1:4: a value cannot start with @", "quote it"),
    ("a: 1\n--- \nb: 2", "2:1: a second document starts here", "keep one sweep in one file"),
    (
        "- 1\n- 2",
        "1:1: a config is keys with values; this is a list",
        "write one key a line, as  endpoint: http://localhost:8000/v1",
    ),
    (
        "hello",
        "1:1: a config is keys with values; this is a single value",
        "write one key a line, as  endpoint: http://localhost:8000/v1",
    ),
    ("? [a]\n: 1", "1:3: a key is plain text", "write one key a line, as  endpoint: http://localhost:8000/v1"),
]


@pytest.mark.parametrize(("text", "what", "hint"), REFUSED, ids=[t.replace("\n", "/") for t, _, _ in REFUSED])
def test_what_readers_disagree_about_is_refused_with_place_and_way_out(
    text: str, what: str | None, hint: str | None
) -> None:
    if what is None:
        assert {"a": 0.0025} == parse_yaml(text, "f.yaml").tree
        return
    line = int(what.split(":")[0])
    source = text.split("\n")[line - 1].strip()
    assert f"f.yaml:{what}\n  {line} | {source}\n  {hint}" == complaints(text)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_an_empty_config_says_how_to_get_one(text: str) -> None:
    assert complaints(text).startswith("f.yaml:1:1: the config is empty")
    assert complaints(text).endswith("  frontier init URL > sweep.yaml  writes one")


def test_control_characters_and_impossible_escapes_are_refused_by_name() -> None:
    assert "f.yaml:2:4: the character U+0007 cannot stand in a config\n  remove it" == complaints("a: 1\nb: \x07")
    assert "f.yaml: a \\U escape names no character\n  write the character itself" == complaints('a: "\\UFFFFFFFF"')


def test_everything_wrong_is_told_at_once() -> None:
    told = complaints("a: yes\nb: 010\na: 1e3\n")
    assert ["1:4", "2:4", "3:1", "3:4"] == [
        line.split(": ")[0].removeprefix("f.yaml:") for line in told.splitlines() if line.startswith("f.yaml:")
    ]


def test_an_alias_stands_for_its_anchor() -> None:
    doc = parse_yaml("a: &x {b: 010x}\nc: *x\nd: [*x, *x]\n", "f.yaml")
    assert {"b": "010x"} == doc.tree["c"] == doc.tree["d"][1]
    assert "010x" == doc.text(("d", 1, "b"))


def test_aliases_of_aliases_are_bounded() -> None:
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    assert f"the config holds more than {MAX_NODES:,} values" in complaints("a0: &a0 [1,2,3,4,5,6,7,8,9,10]\n" + levels)


def test_size_depth_and_anchors_are_bounded() -> None:
    assert complaints("a: " + "x" * MAX_BYTES).startswith("f.yaml: the config is larger than 128 KiB")
    assert "values are nested deeper than 20 levels" in complaints("a: " + "[" * 500)
    assert "values are nested deeper than 20 levels" in complaints("a: " + "[" * 30 + "]" * 30)
    many = "\n".join(f"k{i}: &k{i} 1" for i in range(MAX_ANCHORS + 1))
    assert f"more than {MAX_ANCHORS} anchors" in complaints(many)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet="ab01:.-[]{}&*!,'\"\\ \n\t|>%#?xeyn~", max_size=60))
def test_any_text_loads_or_is_refused_and_nothing_else_escapes(text: str) -> None:
    tree, told = outcome(text)
    assert (tree is None) == bool(told)
    breaks = len(re.findall("[\n\r\x85\u2028\u2029]", text))
    assert all(c.line is None or 1 <= c.line <= breaks + 2 for c in told)


TREES = st.recursive(
    st.booleans() | st.integers(-(10**12), 10**12) | st.text(alphabet="abcdefg hij:#-'\"01yesno", max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), TREES, min_size=1), st.booleans())
def test_what_yaml_writes_is_read_back_unchanged(tree: dict[str, object], flow: bool) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, default_style=None)
    found, told = outcome(text)
    if told:  # PyYAML writes 1e3 and 0o17 without quotes
        assert all("YAML readers" in c.what for c in told)
    else:
        assert tree == found


def test_plain_values_agree_with_pyyaml_where_it_is_unambiguous() -> None:
    for text in ("0", "7", "-12", "1_000", "3.25", "-0.5", ".5", "true", "false", "null", "~", "text", "1024/256"):
        assert yaml.safe_load(text) == plain_value(text)
