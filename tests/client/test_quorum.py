"""What a client may say of a quorum, and how it is sent."""

from __future__ import annotations

import pytest

from replitree.client.insert.quorum import InsertQuorum, quorum_of
from replitree.client.insert.upload import insert_query
from replitree.errors import BadInput


@pytest.mark.parametrize(
    ("size", "timeout_s", "quorum"),
    [
        (None, None, None),
        (2, None, InsertQuorum(2, 10.0)),
        ("3", 0.5, InsertQuorum(3, 0.5)),
        ("majority", 60.0, InsertQuorum("majority", 60.0)),
        ("all", None, InsertQuorum("all", 10.0)),
    ],
)
def test_what_may_be_said(size: int | str | None, timeout_s: float | None, quorum: InsertQuorum | None) -> None:
    assert quorum_of(size, timeout_s) == quorum


@pytest.mark.parametrize(
    ("size", "timeout_s"), [(0, None), ("most", None), (-1, None), (2, 0.0), (2, 1e6), (None, 5.0)]
)
def test_what_may_not_be_said(size: int | str | None, timeout_s: float | None) -> None:
    with pytest.raises(BadInput, match="quorum"):
        quorum_of(size, timeout_s)


def test_it_is_part_of_the_query() -> None:
    assert insert_query("a", None, InsertQuorum("majority", 2.5)) == "?token=a&quorum=majority&quorum_timeout_s=2.5"
