"""A group in a process runs the procedures of `tablet.group.openings`: what is broken there is broken here."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import find_patch
from tests.storage.blob_providers import InMemory, open_all


def obstacles_of_an_old_copy() -> list[bool]:
    """Put an old copy in the place of member 0; return for each member whether something speaks against it."""
    provider = InMemory()
    put_back = provider.save(0)
    open_all(provider).groups.close()
    put_back()
    group = open_all(provider)
    group.groups.close()
    return [why is not None for why in group.obstacles]


def test_old_copy_does_not_take_part() -> None:
    assert obstacles_of_an_old_copy() == [True, False, False]


@pytest.mark.parametrize("name", ["not-remembered", "older-session-admitted"])
def test_old_copy_takes_part_where_the_rules_are_broken(name: str) -> None:
    with find_patch("openings", name).mutated():
        assert obstacles_of_an_old_copy() == [False, False, False]
