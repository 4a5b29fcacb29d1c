"""Which variants are the same server."""

import pytest

from frontier.config import load_config
from frontier.extras.tune.same_launch import commands_of, same_server

HEAD = "shapes: 128/32\nsla: {p95_ttft: 500ms}\ndeployments:\n"
SERVE = "- {name: v, endpoint: 'http://127.0.0.1:8000/v1', start: 'serve MODEL --seqs 64 {more}', variants: ["
SAME = {
    "flags in another order": ("[--a, 1, --b, 2]", "[--b, 2, --a, 1]"),
    "a value after = or a space": ("[--a=1]", "[--a, 1]"),
    "both": ("[--a=1, --switch, --b, x]", "[--b=x, --a, 1, --switch]"),
    "zeros that change nothing": ("[--part, 0.90]", "[--part=0.9]"),
    "underscores": ("[--max_num_seqs, 8]", "[--max-num-seqs=8]"),
    "parameters by their keys": ("[--set, a=1, --set, b=2]", "[--set, b=2, --set, a=1]"),
    "what the command has anyway": ("null", "[--seqs, 64]"),
    "negative numbers": ("[-x, -1, --y, 2]", "[--y, 2, -x, -1]"),
}
UNLIKE = {
    "another value": ("[--a, 1]", "[--a, 2]"),
    "a value that replaces the one before": ("null", "[--seqs, 128]"),
    "the last of two values counts": ("[--a, 1, --a, 2]", "[--a, 2, --a, 1]"),
    "a word before an option or after": ("[x, --a]", "[--a, x]"),
    "long numbers": ("[--a, 12345678901234567]", "[--a, 12345678901234568]"),
    "nothing as a value": ("[--a, '']", "[--a]"),
    "an option after the end of options": ("[--a, --, --b]", "[--b, --, --a]"),
    "upper case": ("[-t, 1]", "[-T, 1]"),
}


@pytest.mark.parametrize("other", [*SAME, *UNLIKE])
def test_a_variant_is_the_same_server_however_its_flags_are_written(other: str) -> None:
    one, two = (SAME | UNLIKE)[other]
    text = f"{HEAD}{SERVE}{{name: today, more: {one}}}, {{name: new, more: {two}}}]}}\n"
    assert same_server(load_config(text, "s.yaml")) == (("today", "new") if other in SAME else None)


def test_each_command_of_a_line_is_one_of_its_own() -> None:
    assert commands_of("A=1 B=2 s --a && t --b") == commands_of("B=2 A=1 s --a && t --b")
    assert commands_of("s --a && t --b") != commands_of("s --b && t --a")
    assert commands_of("s --a > one") != commands_of("s --a > two")
    assert commands_of("s 'x") != commands_of("s 'y"), "a quote that is not closed is the shell's to refuse"
    assert commands_of("s --a \\\n  --b") == commands_of("s --b --a")
