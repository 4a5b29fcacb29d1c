"""YAML with positions: what is ambiguous is refused by name, whatever the text nothing but
ConfigError escapes."""

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.config.complaints import Complaint, ConfigError
from frontier.config.yaml_source import MAX_BYTES, YamlDocument, compose, fill, plain_value
from tests.kit.complaints import Place, assert_complaints


def parse_yaml(text: str, file: str) -> YamlDocument:
    root, document = compose(text, file)
    fill(document, root)
    if document.complaints:
        raise ConfigError(file, tuple(document.complaints))
    return document


def place(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def refused(text: str) -> tuple[Complaint, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "s.yaml")
    return caught.value.complaints


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


REFUSED = {
    "a: yes": (1, 4),
    "a: Off": (1, 4),
    "a: True": (1, 4),
    "a: 010": (1, 4),
    "a: 0x1F": (1, 4),
    "a: 0o17": (1, 4),
    "a: 1:30": (1, 4),
    "a: 1e3": (1, 4),
    "a: 25E4": (1, 4),
    "a: 2e-3": (1, 4),
    "a: 1e99": (1, 4),
    "a: .nan": (1, 4),
    "a: -.inf": (1, 4),
    "a: 12345678901234567890": (1, 4),
    "a: 1.0e+400": (1, 4),
    "a: 1\nb: 2\na: 3": (3, 1),
    "a: {b: 1, b: 2}": (1, 11),
    "a: !!python/object:os.system x": (1, 4),
    "a: !!int 3": (1, 4),
    "<<: {a: 1}": (1, 1),
    "a: *b": (1, 4),
    "a: &b [*b]": (1, 8),
    "a:\n\tb: 1": (2, 1),
    "a: [1, 2\nb: 3": (1, 4),
    "a: {b: 1\nc: 3": (1, 4),
    "a: 'x": (1, 4),
    "a: b: c": (1, 5),
    "a: @x": (1, 4),
    "a: 1\n--- \nb: 2": (2, 1),
    "- 1\n- 2": (1, 1),
    "hello": (1, 1),
    "? [a]\n: 1": (1, 3),
}


@pytest.mark.parametrize(("text", "place"), REFUSED.items(), ids=[text.replace("\n", "/") for text in REFUSED])
def test_what_readers_disagree_about_is_refused_with_place_and_way_out(text: str, place: Place) -> None:
    assert_complaints(refused(text), place)


def test_a_number_that_all_readers_agree_about_is_read() -> None:
    assert {"a": 0.0025} == parse_yaml("a: 2.5e-3", "f.yaml").tree


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_an_empty_config_says_how_to_get_one(text: str) -> None:
    assert_complaints(refused(text), (1, 1))


def test_control_characters_and_impossible_escapes_are_refused_by_name() -> None:
    assert_complaints(refused("a: 1\nb: \x07"), (2, 4), part="character")
    assert_complaints(refused('a: "\\UFFFFFFFF"'), None, part="escape")


def test_everything_wrong_is_told_at_once() -> None:
    assert_complaints(refused("a: yes\nb: 010\na: 1e3\n"), (1, 4), (2, 4), (3, 1), (3, 4))


def test_an_alias_stands_for_its_anchor() -> None:
    doc = parse_yaml("a: &x {b: 010x}\nc: *x\nd: [*x, *x]\n", "f.yaml")
    assert {"b": "010x"} == doc.tree["c"] == doc.tree["d"][1]
    assert "010x" == doc.text(("d", 1, "b"))


LEVELS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
TOO_MUCH: dict[str, tuple[str, Place | None]] = {
    "aliases of aliases": ("a0: &a0 [1,2,3,4,5,6,7,8,9,10]\n" + LEVELS, (1, 28)),
    "bytes": ("a: " + "x" * MAX_BYTES, None),
    "open lists": ("a: " + "[" * 500, (1, 24)),
    "lists in lists": ("a: " + "[" * 30 + "]" * 30, (1, 24)),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_size_depth_and_aliases_are_bounded(what: str) -> None:
    text, place = TOO_MUCH[what]
    assert_complaints(refused(text), place)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet="ab01:.-[]{}&*!,'\"\\ \n\t|>%#?xeyn~", max_size=60))
def test_any_text_loads_or_is_refused_and_nothing_else_escapes(text: str) -> None:
    tree, told = outcome(text)
    assert (tree is None) == bool(told)
    breaks = len(re.findall("[\n\r\x85\u2028\u2029]", text))
    for complaint in told:
        if complaint.line is None:  # where an escape of no character stands is not known
            assert "\\U" in text
        else:
            assert 1 <= complaint.line <= breaks + 2


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
        assert {"YAML readers" in c.what for c in told} == {True}
    else:
        assert tree == found


def test_plain_values_agree_with_pyyaml_where_it_is_unambiguous() -> None:
    for text in ("0", "7", "-12", "1_000", "3.25", "-0.5", ".5", "true", "false", "null", "~", "text", "1024/256"):
        assert yaml.safe_load(text) == plain_value(text)
