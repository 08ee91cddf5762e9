"""The node ``placement`` of a sharded table: which replicas host which shard.

A replica joins a shard only if the shard is placed on it.  A shard that the node does not name is placed on every replica.  An
operator changes the node: a replica that is added joins at once; one that is taken out serves the shard until its server starts
again, and is then dropped from it by the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.layout import check_replica_name
from replitree.protocol.core.values import decode_value
from replitree.protocol.sharded.shard_map import Shard

PLACEMENT_FORMAT = 1


class Placement(msgspec.Struct, frozen=True):
    """Value of the node.

    Attributes
    ----------
    replicas
        (shard, names of its replicas) of each shard that is not placed on every replica, ascending.
    """

    replicas: tuple[tuple[Shard, tuple[str, ...]], ...] = ()
    format: int = PLACEMENT_FORMAT

    def of(self, shard: Shard) -> tuple[str, ...] | None:
        """Return the names of the replicas that a shard is placed on; None: all."""
        return dict(self.replicas).get(shard)

    def hosts(self, shard: Shard, replica: str) -> bool:
        """Whether a shard is placed on a replica."""
        names = self.of(shard)
        return names is None or replica in names

    def placed(self, shard: Shard, replicas: Sequence[str]) -> Placement:
        """Return this placement with one shard placed on other replicas; none are named: on all.

        Raises
        ------
        BadInput
            One is named twice.  `InvalidName` if it can't be a replica's name.
        """
        names = tuple(map(check_replica_name, replicas))
        if len(set(names)) < len(names):
            raise BadInput(f"a replica is named twice: {', '.join(names)}")
        others = {at: those for at, those in self.replicas if at != shard}
        return Placement(tuple(sorted({**others, **({shard: names} if names else {})}.items())))


EVERYWHERE = Placement()
"""Every replica hosts every shard."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(Placement).decode


def spread(shards: Sequence[Shard], replicas: Sequence[str], copies: int) -> Placement:
    """Return a placement of `copies` replicas for each shard; the numbers of shards on two replicas differ by one at most.

    Parameters
    ----------
    shards, replicas
        What is placed, and where.

    Raises
    ------
    BadInput
        There are fewer replicas than copies, or no copy is asked for.

    Examples
    --------
    >>> spread([Shard(0), Shard(1), Shard(2)], ["r1", "r2", "r3"], 2).replicas
    ((0, ('r1', 'r2')), (1, ('r1', 'r3')), (2, ('r2', 'r3')))
    """
    if not 1 <= copies <= len(replicas):
        raise BadInput(
            f"each shard is to have {copies} replicas, and there are {len(replicas)}: {', '.join(replicas) or 'none'};"
            f" ask for 1 to {len(replicas)}, or start more servers"
        )
    names = sorted(replicas)
    return Placement(
        tuple(
            (shard, tuple(sorted(names[(number * copies + copy) % len(names)] for copy in range(copies))))
            for number, shard in enumerate(shards)
        )
    )


def encode_placement(value: Placement) -> bytes:
    """Return the bytes of the node.

    >>> encode_placement(Placement(((Shard(0), ("r1", "r2")),)))
    b'{"replicas":[[0,["r1","r2"]]],"format":1}'
    """
    return _encode(value)


def decode_placement(raw: bytes, where: str) -> Placement:
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
    return decode_value(_decode, raw, where, PLACEMENT_FORMAT)
