"""Which shares a replica's own marks name, when its disk can't tell."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Create
from replitree.protocol.core.layout import Replica
from replitree.protocol.shares.own_marks import marked_shares
from replitree.protocol.shares.share_effects import Sharer
from tests.protocol.test_share import TABLE, Store

PART, LATER = "all_0_0_0", "all_0_0_0_5"


def marked(*marks: str) -> Store:
    """A table whose shares have these marks, each ``share/replica~incarnation~part``."""
    store = Store("r1", "r2")
    for mark in marks:
        share = layout.share(TABLE, mark.partition("/")[0])
        if store.tree.get(share) is None:
            store.tree, _ = store.tree.commit((Create(share),), 1)
        store.tree, _ = store.tree.commit((Create(f"{layout.shares(TABLE)}/{mark}"),), 1)
    return store


def found(store: Store, *parts: str) -> dict[str, tuple[str, ...]]:
    answer: dict[str, tuple[str, ...]] = store.run(marked_shares(Sharer(Replica(TABLE, "r1"), "i1"), parts))
    return answer


def test_every_share_with_a_mark_of_the_part_is_found() -> None:
    store = marked(f"b/r1~i1~{PART}", f"a/r1~i1~{PART}", f"a/r2~i2~{PART}", f"c/r2~i2~{PART}")
    assert found(store, PART) == {PART: ("a", "b")}


def test_marks_of_others_of_earlier_incarnations_and_of_other_parts_do_not_count() -> None:
    store = marked(f"a/r2~i1~{PART}", f"b/r1~i0~{PART}", f"c/r1~i1~{LATER}", f"d/r1~i11~{PART}", f"e/r11~i1~{PART}")
    assert found(store, PART) == {}
    assert found(store, PART, LATER) == {LATER: ("c",)}


def test_it_costs_one_request_for_each_share_and_two_for_all() -> None:
    store = marked(*(f"{share}/r1~i1~{PART}" for share in "abc"))
    store.requests = 0
    assert found(store, PART) == {PART: ("a", "b", "c")}
    assert store.requests == 5


def test_a_table_without_shares_has_none() -> None:
    assert found(Store("r1"), PART) == {}
