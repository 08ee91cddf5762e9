"""Table properties of `ALTER TABLE`, each of which is a change of its own."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.errors import BadInput
from replitree.spark.catalog.definitions import alter
from replitree.spark.catalog.requests import PlannerRequest


class ChangedTable:
    """Notes how it is changed."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda value: self.changes.append((name, value))


def test_when_rows_go_and_filters_are_properties_that_can_be_changed() -> None:
    table: Any = ChangedTable()
    given = {"ttl": "at + 90 days", "bloom": "user, url", "keep": ""}
    alter(table, PlannerRequest(id=1, do="alter", table="t", properties=given))
    assert table.changes == [("set_bloom", "user, url"), ("set_keep", ""), ("set_ttl", "at + 90 days")]


def test_a_property_that_can_not_be_changed_is_told_those_that_can() -> None:
    with pytest.raises(BadInput, match="bloom, feed, keep, storage, ttl can: fill another table"):
        alter(ChangedTable(), PlannerRequest(id=1, do="alter", table="t", properties={"order_by": "k"}))  # type: ignore[arg-type]
