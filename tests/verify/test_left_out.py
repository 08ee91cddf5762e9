"""What is left out of a procedure is left out while a model is explored, and a model that needs it notices."""

from __future__ import annotations

import pytest

from tests.verify.left_out import RESULTS, UNNOTICED, LeftOut, Noticed, find, look, models_that_run, source_of
from tests.verify.left_out_page import PAGE, REASONS, rows_noticed, rows_unnoticed
from tests.verify.lines import read_lines

INSERT = "replitree.protocol.insert.insert"


def piece_of(function: str, text: str) -> LeftOut:
    """Return the first piece of a function of the insert whose text begins so."""
    return next(
        each
        for each in find(INSERT, source_of(INSERT))
        if each.place.function == function and each.place.text.startswith(text)
    )


@pytest.mark.parametrize(
    ("text", "model", "how"),
    [
        ("fx.Check(layout.host(replica), epoch)", "ids_command", "I9"),
        ("*conditions.unchanged", "roll_session", "DENSE"),
        ("*open_quorum(replica, entry)", "quorum_alone", "QUORUM"),
    ],
)
def test_a_model_notices_what_it_needs(text: str, model: str, how: str) -> None:
    piece = piece_of("_put_in_log", text)
    assert look(piece, (model,), 1) == Noticed(*piece.place, 1, 1, model, how)


def test_a_model_that_does_not_need_it_does_not_notice() -> None:
    noticed = look(piece_of("_put_in_log", "*open_quorum(replica, entry)"), ("clean_duplicate",), 279)
    assert (noticed.model, noticed.how) == ("", UNNOTICED)
    assert not noticed.is_open(279)
    assert noticed.is_open(280)


def test_models_are_known_by_the_functions_that_they_run() -> None:
    running = models_that_run((INSERT,), ("clean_duplicate", "quorum_alone"))
    assert running[INSERT, "_answer_duplicates"] == ["clean_duplicate"]
    assert running[INSERT, "take"] == ["clean_duplicate", "quorum_alone"]


def test_the_page_shows_the_results() -> None:
    results, lines = read_lines(RESULTS, Noticed), PAGE.read_text(encoding="utf-8").splitlines()
    assert {*rows_noticed(results), *rows_unnoticed(results)} <= set(lines)
    unnoticed = [each for each in results if each.how == UNNOTICED]
    for function, text in REASONS:
        assert any(each.function == function and each.text.startswith(text) for each in unnoticed), (function, text)
