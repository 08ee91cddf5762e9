"""Counted: the node of an open insert names the replicas that have its parts, until they leave the table.

A name below ``quorum/status`` stands for the replica that had this name when it counted itself.  The drop of a replica removes
its name from every open insert first, and only then its marks, its parts and its nodes.  So a replica that joins again under
the name, maybe with an empty disk, has to count itself like any other one, and an insert settles only with replicas that have
it.

A removed name does not come back: the mark of the drop has ended the replica's epoch, and other replicas change the node only
at the version at which they have read it.

Absent on purpose: an incarnation beside each name.  Replicas on local disks have none, and a replica that settles without
reading the node (`quorum.count_first`) could not compare it.

Source: design 3; ``spec/clickhouse_replication.md`` 5.
"""

from __future__ import annotations

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.values import decode_value

QUORUM_FORMAT = 1

ATTEMPTS_MAX = 16
"""How often a refused or unknown commit is looked at again: more than there are replicas that may be faster."""


class QuorumValue(msgspec.Struct, frozen=True):
    """Value of a node below ``quorum/status``.

    Attributes
    ----------
    quorum
        How many replicas must have the insert's parts.
    replicas
        Those that have them, ascending.
    """

    quorum: int
    replicas: tuple[str, ...]
    format: int = QUORUM_FORMAT


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(QuorumValue).decode


def encode_quorum(value: QuorumValue) -> bytes:
    """Return the bytes of a node below ``quorum/status``.

    >>> encode_quorum(QuorumValue(2, ("r1",)))
    b'{"quorum":2,"replicas":["r1"],"format":1}'
    """
    return _encode(value)


def decode_quorum(raw: bytes, where: str) -> QuorumValue:
    """Read a node below ``quorum/status``.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, QUORUM_FORMAT)


def count_no_more(replica: Replica, marked: fx.Check) -> fx.Procedure[bool]:
    """Take a replica that is being dropped back from the inserts that it is counted for, as long as they are open.

    Parameters
    ----------
    replica
        The replica that is being dropped.
    marked
        What proves it.  The session has seen the mark, so it sees every node that names the replica.

    Returns
    -------
    Whether it is certainly counted for none; if not, the drop is to be repeated.
    """
    for name in (yield fx.Children(layout.quorum_statuses(replica.table))) or ():
        if not (yield from _take_back(replica, marked, f"{layout.quorum_statuses(replica.table)}/{name}")):
            return False
    return True


def _take_back(replica: Replica, marked: fx.Check, path: str) -> fx.Procedure[bool]:
    """Take a replica back from one insert; True: it is not counted, or the insert is open no more."""
    for _ in range(ATTEMPTS_MAX):
        node: fx.Node | None = yield fx.Get(path)
        value = None if node is None else decode_quorum(node.value, path)
        if node is None or value is None or replica.name not in value.replicas:
            return True
        others = tuple(name for name in value.replicas if name != replica.name)
        outcome = yield fx.Commit(marked, fx.Set(path, encode_quorum(QuorumValue(value.quorum, others)), node.version))
        match outcome:
            case fx.Applied():
                return True
            case fx.Refused(operation=fx.Check()):
                return False
        yield fx.Sync(path)
    return False


__all__ = ["ATTEMPTS_MAX", "QuorumValue", "count_no_more", "decode_quorum", "encode_quorum"]
