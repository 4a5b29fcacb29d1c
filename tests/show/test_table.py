"""The one table: what is left out where there is no room, and the same rows as JSON."""

import pytest

from frontier.show.table import Cell, Column, Table, to_text


def a_table() -> Table:
    """Three columns of which the middle one has intervals, and the last may be left out."""
    values = tuple(Cell(f"{v} ms", f"[{v - 1}, {v + 1}]") for v in (10, 200))
    return Table(
        (
            Column("c", (Cell("1"), Cell("16"))),
            Column("TTFT", values, 1, long="time to first token", interval_rank=6),
            Column("bound by", (Cell("memory"), Cell("–")), 3, left=True),
        )
    )


@pytest.mark.parametrize(
    ("width", "lines", "hidden"),
    [
        (40, [" c    TTFT  95% CI      bound by", " 1   10 ms  [9, 11]     memory", "16  200 ms  [199, 201]  –"], []),
        (20, [" c    TTFT  bound by", " 1   10 ms  memory", "16  200 ms  –"], ["TTFT"]),
        (10, [" c    TTFT", " 1   10 ms", "16  200 ms"], ["TTFT"]),
        (4, [" c", " 1", "16"], ["TTFT"]),
    ],
)
def test_the_least_important_columns_are_left_out_first(width: int, lines: list[str], hidden: list[str]) -> None:
    assert lines == to_text(a_table().drawn(width), width=width).splitlines()
    assert hidden == a_table().hidden_intervals(width)


def test_rows_make_a_table_with_or_without_heads() -> None:
    rows = [("p95 TTFT", "41 ms", "limit 150 ms"), ("throughput", "2,891 tok/s")]
    assert ["p95 TTFT          41 ms  limit 150 ms", "throughput  2,891 tok/s"] == to_text(
        Table.of((), rows, right=(1,)).drawn(60)
    ).splitlines()
    named = Table.of(("metric", "value"), [row[:2] for row in rows], "Figures")
    assert [
        {"metric": "p95 TTFT", "value": "41 ms"},
        {"metric": "throughput", "value": "2,891 tok/s"},
    ] == named.as_json()
    assert (("metric", "value"), rows[1]) == (named.heads, named.texts[1])
    assert ("c", "time to first token", "bound by") == a_table().heads


def test_text_from_outside_is_no_markup() -> None:
    assert "[red]x[/red] \\[" in to_text(Table.of((), [("[red]x[/red] \\[",)]).drawn(60))
