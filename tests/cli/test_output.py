"""What people and programs see."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from replitree.cli import output
from replitree.cli.output import Output, byte_size, cell, print_error
from replitree.cli.tables.sql_rows import unique
from replitree.cli.tables.table import _split, parse_settings
from replitree.errors import BadInput


def test_json_result_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).result({"a": [1, None, "ü"]}, "for people")
    assert json.loads(capsys.readouterr().out) == {"a": [1, None, "ü"]}


def test_table_shows_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table("numbers", ("name", "n"), [("a", 1234567), ("b", None)])
    out = capsys.readouterr().out
    assert "1,234,567" in out
    assert "numbers" in out


def test_table_without_room_becomes_paragraphs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ("replica", "address", "pointer", "reason")
    row = ("r1", "127.0.0.1:37167", 1234, "a part that nobody has, and nobody can make")
    terminals = [Console(width=width, force_terminal=True, color_system=None) for width in (80, 36)]
    monkeypatch.setattr(output, "console", lambda: terminals.pop(0))
    Output().table("replicas", columns, [row])
    assert "┃ replica ┃ address " in capsys.readouterr().out
    Output().table("replicas", columns, [row])
    assert capsys.readouterr().out.splitlines() == [
        "replicas",
        "r1",
        "  address 127.0.0.1:37167",
        "  pointer 1,234  reason a part that",
        "  nobody has, and nobody can make",
    ]


def test_error_is_one_line_even_when_its_message_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("BadInput", "first\n  second", as_json=False)
    assert capsys.readouterr().err == "replitree: first second\n"
    print_error("BadInput", "first\n  second", as_json=True)
    assert json.loads(capsys.readouterr().err) == {"error": "BadInput", "message": "first second"}


@pytest.mark.parametrize(
    ("value", "shown"), [(1234, "1,234"), (True, "yes"), (12345.678, "12,346"), (0.12345, "0.1235"), ("x", "x")]
)
def test_cells(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_sizes_have_units() -> None:
    assert [byte_size(size) for size in (0, 1023, 1024, 5 << 30)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]


def test_columns_of_one_name_get_names_of_their_own() -> None:
    assert unique(["a", "A", "a_2", "a"]) == ["a", "A_2", "a_2_2", "a_3"]


def test_lists_are_split_outside_parentheses() -> None:
    assert _split(["month(ts),bucket(16, id) ", "k"]) == ["month(ts)", "bucket(16, id)", "k"]
    assert _split(None) == []


def test_settings_are_read() -> None:
    settings = parse_settings(["parts_max=50", "parts_delay = 20"])
    assert (settings.parts_max, settings.parts_delay) == (50, 20)
    with pytest.raises(BadInput, match="parts_delay"):
        parse_settings(["parts=5"])
