"""Alters of the log as statements that people read."""

from __future__ import annotations

import pytest

from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.alter_text import alter_words, statement
from replitree.storage.sql.evolve import Alter, Change
from tests.storage.evolving import table
from tests.storage.test_evolve_sql import READ


@pytest.mark.parametrize(("text", "changes"), READ)
def test_the_statement_of_an_alter_is_read_as_the_same_alter(text: str, changes: list[Change]) -> None:
    alter = Alter(tuple(changes))
    assert parse_alter(statement(alter), table()) == alter, text
    assert alter_words(alter.encode().decode()) == statement(alter)


def test_what_a_newer_version_has_written_stands_as_it_is() -> None:
    newer = '{"changes":[{"do":"paint column","name":"x"}],"format":9}'
    assert alter_words(newer) == newer
