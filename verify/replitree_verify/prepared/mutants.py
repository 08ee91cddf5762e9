"""Broken rules of merges whose results a client puts; each must be found by name."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.protocol.core.effects import Check, StagingId
from replitree.protocol.execute import make_once, making
from replitree.protocol.execute.making import Making
from replitree.protocol.shares import letting_go, uploading
from replitree.protocol.shares.share import ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.engine.small_search import Mutant

_PUBLISH_RESULT = making.publish_result

_Any = Generator[Any, Any, Any]


def _looks_at_nothing(_sharer: Sharer, _shares: tuple[ShareId, ...]) -> _Any:
    yield from ()
    return ObjectsThere()


def _forgets_only(_proof: Check, _sharer: Sharer, _share: ShareId) -> _Any:
    yield from ()
    return True


def _registers_anyway(
    made_of: Making, staging: StagingId, content: str, *, published: bool, marked: bool = False, for_all: bool = False
) -> _Any:
    """Register what was put, too, if it is the same."""
    del for_all
    return (yield from _PUBLISH_RESULT(made_of, staging, content, published=published, marked=marked))


MUTANTS = (
    Mutant(
        "prepared-believed",
        "a result is registered that a client says it has put, without a look",
        "merge_prepared",
        "WHOLE",
        {(uploading, "take_attempts"): _looks_at_nothing},
    ),
    Mutant(
        "prepared-forgotten",
        "of what was put and is not needed only the upload is forgotten, and its attempt stays",
        "merge_prepared",
        "SETTLES",
        {(letting_go, "_has_given_up"): _forgets_only},
    ),
    Mutant(
        "prepared-twin-kept",
        "what was put is registered beside what another replica has made meanwhile",
        "merge_prepared_expiry",
        "ONE",
        {(make_once, "publish_result"): _registers_anyway},
    ),
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


__all__ = ["MUTANTS", "find_mutant"]
