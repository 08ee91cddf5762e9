"""The scope of a mutation: the partitions whose parts it replaces.

A mutation gives every part in its scope a new name on every replica.  Without a scope that is every earlier part, also where no
row can match the condition.  So the replica that proposes a mutation looks at its own state first:

1. *look*     it takes its place in the log: the position ``since``, and the parts of the fold there
2. *judge*    it lists the partitions of all parts, but for those of which it proves that the mutation leaves them as they are;
              a part that it has not registered whole is never proven
3. *propose*  the entry carries the list and ``since``

The fold (`replitree.protocol.core.fold`) adds every part that an entry from ``since`` on has inserted or mutated.  So
the proposer may be any number of entries behind the log's end: what it has not seen is in scope.  The order of 1 and 2
matters: an entry that arrives between them is in scope already.

The judgement rests on two facts.  A part's name decides its rows, on every replica.  And merges keep rows as they are; where a
merge policy makes new values, the caller must not claim that a part is left as it is by a condition on those columns.

Absent on purpose: the condition.  `replitree.replica.parts.commands` asks the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from replitree.protocol.core.entries import EVERY_PARTITION, MutateEntry
from replitree.protocol.core.parts import Part
from replitree.protocol.state.pull import Place

SCOPE_BYTES_MAX = 16_384
"""A longer list of partitions is not worth its place in the log and in every queue: all parts are in scope then."""

SCOPED_FORMAT = 2


def scoped(entry: MutateEntry, place: Place, is_left: Callable[[Part], bool]) -> MutateEntry:
    """Return a mutation with its scope, or as it is when the scope would be everything.

    Parameters
    ----------
    entry
        The mutation, without a scope.
    place
        Where the proposing replica stands.
    is_left
        Returns whether the mutation certainly leaves a part as it is.  It must return False for a part that the replica does
        not have registered and whole.
    """
    if entry.partition != EVERY_PARTITION:
        return entry
    listed = partitions_to_list(place.parts, is_left)
    if listed is None:
        return entry
    return msgspec.structs.replace(entry, format=SCOPED_FORMAT, partitions=listed, since=int(place.pointer.index))


def partitions_to_list(parts: Iterable[Part], is_left: Callable[[Part], bool]) -> tuple[str, ...] | None:
    """Return the partitions with a part that the mutation may change, ascending; None when the list becomes too long.

    Parameters
    ----------
    parts
        All parts of the table, ascending.
    is_left
        As in `scoped`.
    """
    listed: list[str] = []
    left_bytes = SCOPE_BYTES_MAX
    for part in parts:
        if listed and listed[-1] == part.partition:
            continue
        if not is_left(part):
            listed.append(part.partition)
            left_bytes -= len(part.partition) + len('"",')
            if left_bytes < 0:
                return None
    return tuple(listed)


__all__ = ["SCOPE_BYTES_MAX", "partitions_to_list", "scoped"]
