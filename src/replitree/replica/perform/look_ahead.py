"""What the puller has read and not pulled yet.  It is in the log for good, so some things need not wait for the pull.

* The outcome of an insert with a quorum goes to the request that waits for it.
* What this replica has prepared for a joint insert, or a rewrite over shards, is held no longer.
* A small part of another replica's insert with a quorum is received while the pull is committed.  It is published when the
  entry is executed, and not before; if it never is, what was received goes with the fetches that are not needed
  (`replica.parts.orphans`).

Nothing else goes by what was read only: the parts, the queue and what reads show follow the pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replitree.protocol.core.effects import FetchPart, LogIndex, Node, StagingId
from replitree.protocol.core.entries import FailEntry, GetEntry, RewriteEntry, SettleEntry, decode_entry, quorum_of
from replitree.protocol.core.parts import inserted_part
from replitree.protocol.insert.quorum import QuorumEnded

AHEAD_BYTES_MAX = 1 << 20
"""A larger part is fetched when its entry is executed."""

AHEAD_AT_ONCE = 4
"""When more parts than these are read of together, they are better fetched as a bundle."""


class LookAhead:
    """Looks at the entries that a puller reads.

    Parameters
    ----------
    replica
        Whose puller.
    begin
        Begins to receive a part.
    ended
        Hears what became of an insert.
    committed
        Hears of each entry that names what this replica has staged.
    """

    def __init__(
        self,
        replica: str,
        begin: Callable[[FetchPart], None],
        ended: Callable[[QuorumEnded], None],
        committed: Callable[[StagingId], None] = lambda _: None,
    ) -> None:
        self._replica = replica
        self._begin = begin
        self._ended = ended
        self._committed = committed

    def read(self, first: LogIndex, paths: Sequence[str], nodes: Sequence[Node | None]) -> None:
        """Look at what was read at `paths`, which are the entries from `first` on, up to the first that is not there.

        Raises
        ------
        UnsupportedFormat
            An entry has a newer format, or can't be read.
        """
        wanted: list[FetchPart] = []
        for offset, (path, node) in enumerate(zip(paths, nodes, strict=True)):
            if node is None:
                break
            index, entry = LogIndex(first + offset), decode_entry(node.value, path)
            if isinstance(entry, SettleEntry | FailEntry):
                self._ended(QuorumEnded(index, entry))
            elif isinstance(entry, GetEntry | RewriteEntry) and entry.replica == self._replica:
                self._committed(entry.insert)
            elif isinstance(entry, GetEntry) and quorum_of(entry):
                small = (part for part in entry.parts if part.bytes <= AHEAD_BYTES_MAX)
                wanted += [
                    FetchPart(inserted_part(part.partition, index).name, part.content_hash, (entry.replica,))
                    for part in small
                ]
        for fetch in wanted if len(wanted) <= AHEAD_AT_ONCE else ():
            self._begin(fetch)
