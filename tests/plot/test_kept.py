"""A picture that was drawn before is copied, and one that was not never is."""

import dataclasses
import enum
import shutil
from pathlib import Path

import pytest

from frontier.plot import draw, figure_cache
from frontier.plot.picture import Light, picture
from frontier.plot.picture_model import Picture
from tests.plot.toy import toy_decision, toy_frontier, toy_points


@pytest.fixture(scope="module")
def usual() -> Picture:
    points = toy_points()
    return picture(points, toy_frontier(points), toy_decision(points), light=Light(3600, "roofline"), gpus=1)


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> list[Picture]:
    """Every picture that is really drawn; its bytes tell its number."""
    found: list[Picture] = []

    def render(drawn: Picture, form: str, **_: object) -> bytes:
        found.append(drawn)
        return f"{form} {len(found)}".encode()

    monkeypatch.setattr(draw, "render", render)
    return found


def test_an_unchanged_picture_is_drawn_once(usual: Picture, drawings: list[Picture], tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.PNG"):
        figure_cache.save(usual, tmp_path / name, cache=tmp_path / "cache" / "deep")

    assert [usual] == drawings
    assert {b"png 1"} == {(tmp_path / name).read_bytes() for name in ("a.png", "b.png", "c.PNG")}
    assert 0o700 == (tmp_path / "cache" / "deep").stat().st_mode & 0o777


def test_without_a_cache_it_is_drawn_each_time(usual: Picture, drawings: list[Picture], tmp_path: Path) -> None:
    figure_cache.save(usual, tmp_path / "a.png")
    figure_cache.save(usual, tmp_path / "a.png")

    assert 2 == len(drawings)
    assert [tmp_path / "a.png"] == list(tmp_path.iterdir())


def changes(of: object, into: object) -> list[object]:
    """`into` with one leaf changed by as little as goes, for every leaf of `of` in turn."""
    if dataclasses.is_dataclass(of) and not isinstance(of, type):
        return [
            dataclasses.replace(of, **{f.name: changed})
            for f in dataclasses.fields(of)
            for changed in changes(getattr(of, f.name), into)
        ]
    if isinstance(of, tuple):
        return [(*of[:i], changed, *of[i + 1 :]) for i, part in enumerate(of) for changed in changes(part, into)]
    if of is None or isinstance(of, enum.Enum):
        return [into]
    if isinstance(of, bool):
        return [not of]
    if isinstance(of, int | float):
        return [of + 1 if isinstance(of, int) else float(of) * (1 + 2e-16) if of else 5e-324]
    assert isinstance(of, str), f"{type(of)} may not be told whole by its repr"
    return [of + "\u200b"]


def test_any_change_of_the_picture_is_another_drawing(usual: Picture) -> None:
    one = dataclasses.replace(usual, panels=(dataclasses.replace(usual.panels[0], marks=usual.panels[0].marks[:2]),))
    keys = {figure_cache.key(one, "png", None, "light")}
    every = changes(one, "other")

    keys |= {figure_cache.key(changed, "png", None, "light") for changed in every if isinstance(changed, Picture)}

    assert len(every) > 200
    assert len(keys) == len(every) + 1


def test_how_it_is_asked_for_and_what_draws_it_are_part_of_the_key(
    usual: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        figure_cache.key(usual, form, width, theme)
        for form in ("png", "svg", "pdf")
        for width in (None, 800, 1650)
        for theme in ("light", "dark")
    }
    monkeypatch.setattr(figure_cache, "_drawn_with", lambda: ("another matplotlib",))

    assert 18 == len(keys)
    assert figure_cache.key(usual, "png", None, "light") not in keys


def test_what_draws_is_told_by_its_code_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    told = figure_cache._drawn_with.__wrapped__()
    shutil.copytree(
        Path(figure_cache.__file__).parent, tmp_path / "present", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(figure_cache, "__file__", str(tmp_path / "present" / "kept.py"))
    same = figure_cache._drawn_with.__wrapped__()
    with (tmp_path / "present" / "layout.py").open("a") as file:
        file.write("\n")

    assert mpl.__version__ in told
    assert told == same != figure_cache._drawn_with.__wrapped__()


@pytest.mark.parametrize("damage", [b"", b"png 1", bytes(32) + b"png 1"])
def test_a_damaged_file_is_drawn_anew(usual: Picture, drawings: list[Picture], tmp_path: Path, damage: bytes) -> None:
    cache = tmp_path / "cache"
    figure_cache.save(usual, tmp_path / "a.png", cache=cache)
    (file,) = cache.iterdir()
    file.write_bytes(damage)

    figure_cache.save(usual, tmp_path / "a.png", cache=cache)
    figure_cache.save(usual, tmp_path / "a.png", cache=cache)

    assert (2, b"png 2") == (len(drawings), (tmp_path / "a.png").read_bytes())


def test_what_others_may_write_to_is_no_cache(usual: Picture, drawings: list[Picture], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)

    figure_cache.save(usual, tmp_path / "a.png", cache=cache)
    figure_cache.save(usual, tmp_path / "a.png", cache=cache)

    assert (2, []) == (len(drawings), list(cache.iterdir()))


def test_a_cache_that_cannot_be_written_is_none(usual: Picture, drawings: list[Picture], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    figure_cache.save(usual, tmp_path / "a.png", cache=tmp_path / "file" / "cache")

    assert b"png 1" == (tmp_path / "a.png").read_bytes()


def test_only_the_newest_are_kept(
    usual: Picture, drawings: list[Picture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_cache, "MOST", 3)
    for width in range(800, 805):
        figure_cache.save(usual, tmp_path / "a.png", width=width, cache=tmp_path / "cache")
    figure_cache.save(usual, tmp_path / "a.png", width=804, cache=tmp_path / "cache")

    assert (3, 5) == (len(list((tmp_path / "cache").iterdir())), len(drawings))
