"""Which parts are to move, and where."""

from __future__ import annotations

from replitree.replica.parts.placement import Placed, to_move
from replitree.storage.schema.storage_policy import parse_storage

URL = "file:///lake"
NOW = 1_000_000.0
OLD = Placed("all_0_0_0", None, 600, NOW - 90)
NEWER = Placed("all_1_1_0", None, 300, NOW - 30)
NEW = Placed("all_2_2_0", None, 100, NOW - 1)
STORED = Placed("all_3_3_0", "5" * 32, 100, NOW - 500)
PARTS = (NEW, STORED, OLD, NEWER)


def moved(storage: str, free_bytes: int = 10**12) -> tuple[Placed, ...]:
    return to_move(parse_storage(storage), PARTS, NOW, free_bytes)


def test_a_local_table_takes_everything_out_of_its_store() -> None:
    assert moved("local") == moved(f"local({URL})") == (STORED,)


def test_a_shared_table_moves_everything_what_is_oldest_first() -> None:
    assert moved(URL) == (OLD, NEWER, NEW)


def test_parts_that_are_old_enough_move() -> None:
    assert moved(f"tiered({URL}, older=1m)") == (OLD,)
    assert moved(f"tiered({URL}, older=30s)") == (OLD, NEWER)
    assert moved(f"tiered({URL}, older=1d)") == ()


def test_as_many_parts_move_as_make_room() -> None:
    assert moved(f"tiered({URL}, free=1KB)", free_bytes=1000) == ()
    assert moved(f"tiered({URL}, free=1KB)", free_bytes=500) == (OLD,)
    assert moved(f"tiered({URL}, free=1KB)", free_bytes=399) == (OLD, NEWER)
    assert moved(f"tiered({URL}, free=1KB)", free_bytes=0) == (OLD, NEWER, NEW)


def test_what_moves_for_its_age_makes_room_too() -> None:
    assert moved(f"tiered({URL}, older=1m, free=1KB)", free_bytes=400) == (OLD,)
    assert moved(f"tiered({URL}, older=1m, free=1KB)", free_bytes=300) == (OLD, NEWER)


def test_the_order_does_not_depend_on_names_alone_nor_on_what_is_asked_first() -> None:
    assert to_move(parse_storage(URL), reversed(PARTS), NOW, 0) == moved(URL)
