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


def test_on_a_narrow_terminal_nothing_is_cut_off() -> None:
    rows = [("output throughput within the SLA", "0.859×", "2,734 tok/s at c=45"), ("p95 TPOT", "1.00×", "c=8")]
    lines = to_text(Table.of((), rows).drawn(40), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert {word for row in rows for cell in row for word in cell.split()} == set(" ".join(lines).split())


def test_spared_columns_are_left_out_from_the_last_on() -> None:
    rows = [("2026-11-30", "a", "1,308 tok/s", "20.4 ms", "c=45")]
    table = Table.of(("date", "run", "output throughput", "p50 TTFT", "proven"), rows, right=(2, 3, 4), spared=(2, 3))
    assert "p50 TTFT" in to_text(table.drawn(60), width=60)
    narrow = to_text(table.drawn(45), width=45)
    assert "p50 TTFT" not in narrow
    assert "output throughput" in narrow
    assert ["date        run  proven", "2026-11-30  a      c=45"] == to_text(table.drawn(24), width=24).splitlines()


def test_a_table_below_another_has_only_what_that_one_has_not() -> None:
    above, below = a_table(), Table((*a_table().columns, Column("n", (Cell("7"), Cell("9")), 4)))
    assert [" c  n", " 1  7", "16  9"] == to_text(below.beside(above, 20).drawn(20), width=20).splitlines()
    assert "[199, 201]" in to_text(below.beside(above, 50).drawn(50), width=50), "its intervals are new"
    assert above.heads[1] in below.beside(above, 4).heads, "it had no room above"
