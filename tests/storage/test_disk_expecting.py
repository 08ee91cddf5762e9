"""With which content a part is registered: two threads may hear of it in another order than it changed."""

from __future__ import annotations

from pathlib import Path

from replitree.storage.disk.store import PartStore

PART = "all_0_0_0"


def test_a_content_that_was_read_before_another_was_committed_is_not_expected(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    with store.expecting() as read:
        with store.expecting() as committed:
            committed({PART: "new"})
        assert store.unexpected([PART]) == ()
        read({PART: "old"})
    assert store.unexpected([PART]) == (PART,)


def test_the_same_content_heard_twice_is_expected(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    with store.expecting() as read:
        with store.expecting() as committed:
            committed({PART: "new", "all_1_1_0": "other"})
        read({PART: "new"})
    assert store.unexpected([PART, "all_1_1_0"]) == ()


def test_a_content_that_was_read_before_the_part_was_removed_is_not_expected(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    with store.expecting() as first:
        first({PART: "old"})
    with store.expecting() as read:
        store.remove_parts([PART])
        read({PART: "old"})
    assert store.unexpected([PART]) == (PART,)
