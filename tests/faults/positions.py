"""What the log says of inserts that clients have recorded: by which entry they count, and which replicas had them then.

A client hears where its insert is, and not where it was settled.  With that the rules about positions can judge inserts with a
quorum, too; and an insert that was acknowledged as one with a quorum, of which the log does not say that it was settled, is
written down as held by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from replitree.protocol.core.entries import Entry, GetEntry, SettleEntry, quorum_of
from replitree.wire.history_format import Operation


def with_positions(operations: Iterable[Operation], log: Sequence[tuple[int, Entry]]) -> list[Operation]:
    """Return operations with what the log says of them.

    Parameters
    ----------
    operations
        What clients have recorded.
    log
        Every entry of the table, with its index.
    """
    quorums = {index: quorum_of(entry) for index, entry in log if isinstance(entry, GetEntry)}
    ends = {entry.index: (index, entry.holders) for index, entry in log if isinstance(entry, SettleEntry)}
    return [_with_position(operation, quorums, ends) for operation in operations]


def _with_position(
    operation: Operation, quorums: dict[int, int], ends: dict[int, tuple[int, tuple[str, ...]]]
) -> Operation:
    index = operation.index
    if operation.kind != "insert" or operation.outcome != "ok" or index is None:
        return operation
    quorum = max(operation.quorum, quorums.get(index, 0))
    if quorum < 2:
        return operation
    settled, holders = ends.get(index, (None, ()))
    return msgspec.structs.replace(operation, quorum=quorum, settled=settled, holders=holders)
