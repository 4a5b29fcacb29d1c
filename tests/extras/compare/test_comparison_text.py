"""Several comparisons as one text."""

from frontier.extras.compare.comparison_text import comparisons_text
from frontier.show.verbosity import Detail
from frontier.show.view.comparison_view import ComparisonView


def view(about: str, *notes: str, more: tuple[str, ...] = ()) -> ComparisonView:
    return ComparisonView("no worse", "new against old", about, "", (), notes, more, {})


def test_a_note_on_all_of_several_comparisons_stands_once_below_them() -> None:
    views = [
        view("a", "of a", "of both", more=("of all",)),
        view("b", "of both", more=("of all",)),
        view("c", "of both"),
    ]
    lines = [line.strip() for line in comparisons_text(views, detail=Detail.ALL).splitlines()]
    assert [lines.count(note) for note in ("of a", "of both", "of all")] == [1, 1, 2]
    assert lines.index("of both") > max(i for i, line in enumerate(lines) if line.startswith("no worse"))
    alone = comparisons_text([view("a", "of a")])
    assert "of a" in alone
