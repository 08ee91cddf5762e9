"""Notes of errors about statements that Delta Lake has and Spark can't read."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException, ParseException

from replitree.spark import note_statements
from replitree.spark.session.hints import hint_for
from tests.spark.test_delta_page import ROWS


def parse_error(condition: str | None = "PARSE_SYNTAX_ERROR") -> ParseException:
    error = ParseException("Syntax error at or near 'optimize'")
    error.getCondition = lambda: condition  # type: ignore[method-assign]
    return error


def noted(error: Exception, statement: str) -> list[str]:
    class Session:
        sql = Mock(side_effect=error)

    session: Any = Session()
    note_statements(session)
    note_statements(session)
    with pytest.raises(type(error), match=re.escape(str(error))):
        session.sql(statement, args=None)
    return list(getattr(error, "__notes__", []))


def test_hints_are_what_the_page_names_instead() -> None:
    hints = {row.instead: hint_for(row.shown) for row in ROWS if row.instead}
    given = {instead: hint for instead, hint in hints.items() if hint is not None}
    assert given == {instead: instead for instead in given}
    assert {instead.split("(", 1)[0].split(" ", 1)[0] for instead in given} == {"CREATE", "SELECT", "DESCRIBE", "CALL"}


def test_no_statement_that_works_as_it_is_has_a_hint() -> None:
    assert [row.shown for row in ROWS if row.here == "as is" and not row.since and hint_for(row.shown)] == []
    assert hint_for("SELECT * FROM people@v1") == "people VERSION AS OF 1"


def test_error_keeps_its_words_and_has_one_note() -> None:
    assert noted(parse_error(), "optimize a.`b c`") == ["replitree has instead: CALL replitree.optimize('a.`b c`')"]
    restored = noted(parse_error(), " restore t\n to timestamp as of '2026-01-31 10:00:00' ;")
    assert restored == ["replitree has instead: CALL replitree.restore_to('t', '2026-01-31 10:00:00')"]
    assert noted(parse_error(), "selct 1") == []
    assert noted(ValueError("optimize"), "optimize t") == []


def test_words_of_ours_and_partitions_that_are_not_there_need_no_note() -> None:
    statement = "alter table t drop partition (p = 1)"
    assert "TRUNCATE TABLE t PARTITION" in noted(parse_error("_LEGACY_ERROR_TEMP_1232"), statement)[0]
    for condition in (None, "PARTITIONS_NOT_FOUND"):
        assert noted(parse_error(condition), statement) == []
    assert isinstance(parse_error(), AnalysisException)
