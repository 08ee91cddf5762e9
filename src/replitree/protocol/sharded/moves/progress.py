"""The node ``moves`` of a sharded table: which rows are on their way.

It is there exactly while the map has moves.  Every commit of a move writes it at the version that was read before: so of any
number of processes that carry the moves on, one at a time gets on, and a commit that comes late does nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.protocol.core.effects import StagingId
from replitree.protocol.core.values import decode_value
from replitree.protocol.sharded.shard_map import Shard

PROGRESS_FORMAT = 1

REASON_CHARACTERS_MAX = 500
"""How long a reason in the node may be."""


class Batch(msgspec.Struct, frozen=True):
    """Rows that lie at their target already, and are shown at their source still.

    Attributes
    ----------
    source, target
        The shards of their move.
    partitions
        All rows of the move that the source has in these partitions.
    replica, insert, log_from
        Of the insert that has laid them at the target: its writer, its staging id, and an index that is not above its entry.
    quorum
        How many replicas of the target must have the rows before these are shown there.
    rows, bytes
        How many there are, and how large their files are at the target.
    """

    source: Shard
    target: Shard
    partitions: tuple[str, ...]
    replica: str
    insert: StagingId
    log_from: int
    quorum: int
    rows: int = 0
    bytes: int | UnsetType = UNSET


class RefusedBatches(msgspec.Struct, frozen=True):
    """Batches that were not laid, because the rows at the target were not those of the source.

    Attributes
    ----------
    times
        How many there were since the last batch that arrived.
    reason
        How the last one differed: for people.
    """

    times: int
    reason: str


class MovesProgress(msgspec.Struct, frozen=True):
    """Value of the node.

    Attributes
    ----------
    batch
        What is on its way; UNSET: nothing.
    batches, rows, bytes
        How many batches have arrived since the moves began, how many rows, and how large their files were: for people.
    refused
        The batches that were refused since the last one that arrived; UNSET: none.
    """

    batch: Batch | UnsetType = UNSET
    batches: int = 0
    rows: int = 0
    format: int = PROGRESS_FORMAT
    # Nodes of earlier versions lack what follows.
    bytes: int | UnsetType = UNSET
    refused: RefusedBatches | UnsetType = UNSET

    @property
    def arrived_bytes(self) -> int:
        """How large the files of all that has arrived were."""
        return self.bytes or 0

    def with_arrived(self, batch: Batch) -> MovesProgress:
        """Return what there is after a batch has arrived."""
        return MovesProgress(
            UNSET, self.batches + 1, self.rows + batch.rows, bytes=self.arrived_bytes + (batch.bytes or 0)
        )

    def with_refused(self, reason: str) -> MovesProgress:
        """Return what there is after a batch was refused."""
        times = self.refused.times if self.refused else 0
        return msgspec.structs.replace(self, refused=RefusedBatches(times + 1, reason[:REASON_CHARACTERS_MAX]))


def moves(place: str) -> str:
    """Return the node of the sharded table at `place` (`layout.sharded`).

    >>> moves("/replitree/sharded/events")
    '/replitree/sharded/events/moves'
    """
    return f"{place}/moves"


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(MovesProgress).decode


def encode_progress(value: MovesProgress) -> bytes:
    """Return the bytes of the node.

    >>> encode_progress(MovesProgress())
    b'{"batches":0,"rows":0,"format":1}'
    """
    return _encode(value)


def decode_progress(raw: bytes, where: str) -> MovesProgress:
    """Read the node.

    Parameters
    ----------
    raw, where
        The node's value, and its path, for errors.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, PROGRESS_FORMAT)
