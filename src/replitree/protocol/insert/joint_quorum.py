"""The quorum of a joint insert: all its shards settle, or all fail (J2).

The commit of the joint insert creates ``quorum/status/<insert id>`` in each shard, as that of any insert with a quorum, and
``sharded/<D>/joint/<id>``, which names the entries of all shards.  The replicas of a shard count themselves as for any insert
(`protocol.insert.quorum`), but the one that completes the number of its shard does not settle: it looks at the nodes of all
shards.  If each of them has its number, it ends the joint insert in one commit::

    Delete(joint/<id>), for each shard: Delete(quorum/status/<insert id> @ version), Create(log-…: settle)

A replica that gives up does the same with `fail`, and frees the token in that commit.  Both delete ``joint/<id>``, so exactly
one of them takes place.

*Which replica sees all.*  A replica looks after its own commit, so it sees what was committed before.  Of two shards whose
numbers are completed at the same moment, the later one sees both.  If it dies before it has settled, it looks again when its
state is next loaded (`quorum.rejoin`).  A replica that gives up settles instead when it finds that all are complete.

*Doubt.*  No commit here needs a new epoch after an unknown outcome: each deletes a node that is never created again.

Absent on purpose: a node for each shard below ``joint/<id>``.  The shard's own status node says whether it is ready, and its
version proves that it still is, when a replica leaves the shard meanwhile.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, SettleEntry, Verdict, encode_entry
from replitree.protocol.core.joint_tokens import ShardInsert, decode_joint, decode_token
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import search_log
from replitree.protocol.state.counted import ATTEMPTS_MAX, decode_quorum


def end_joint(replica: Replica, epoch: fx.Epoch, entry: GetEntry, *, gives_up: bool = False) -> fx.Procedure[bool]:
    """Settle a joint insert of which each shard has its quorum; otherwise let it fail if the replica `gives_up`.

    Parameters
    ----------
    replica, epoch
        A replica of one of its shards, and its epoch; the procedure goes on under a newer one.
    entry
        The entry in the log of that shard.

    Returns
    -------
    Whether it is open no more; the logs say what became of it.
    """
    assert isinstance(entry.joint, str)
    place, gone = layout.sharded_of(replica.table), list[str]()
    path, host = layout.joint_insert(place, entry.joint), layout.host(replica)
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return True
    joint = decode_joint(node.value, path)
    shards = tuple(layout.beside(replica.table, each.shard, each.incarnation) for each in joint.inserts)
    written = yield from _find(shards, joint.inserts)
    if written is None:
        return False
    statuses = tuple(
        layout.quorum_status(shard, each.insert) for shard, each in zip(shards, joint.inserts, strict=True)
    )
    tokens, token = layout.joint_tokens(place), layout.joint_token(place, joint.token)
    for _ in range(ATTEMPTS_MAX):
        marks: fx.Lists = yield fx.ChildrenMany(tuple(layout.open_logs(shard) for shard in shards))
        many: fx.Many = yield fx.GetMany((path, *statuses, tokens, token))
        *opened, above, taken = many.nodes
        read = tuple(each for each in opened if each is not None)
        if len(read) < len(opened):
            return True
        values = tuple(decode_quorum(each.value, at) for at, each in zip(statuses, read[1:], strict=True))
        # Without the replicas that have left their shards.
        counted = tuple(
            tuple(name for name in value.replicas if layout.host(Replica(shard, name)) not in gone)
            for shard, value in zip(shards, values, strict=True)
        )
        is_ready = all(len(names) >= each.quorum for each, names in zip(values, counted, strict=True))
        if not is_ready and not gives_up:
            return False
        deletes = (fx.Delete(at, each.version) for at, each in zip((path, *statuses), read, strict=True))
        proofs, freed = tuple[fx.Check, ...](), tuple[fx.Operation, ...]()
        if is_ready:
            holders = (Replica(shard, name) for shard, names in zip(shards, counted, strict=True) for name in names)
            proofs = tuple(fx.Check(layout.host(each), fx.ANY_VERSION) for each in holders)
        elif above is not None and taken is not None and decode_token(taken.value, token).joint == entry.joint:
            # Every removal of a token is counted: one that another insert has taken since looks like the old one.
            freed = fx.Set(tokens, above.value, above.version), fx.Delete(token, taken.version)
        ends = _ends(replica.name, shards, marks, written, counted if is_ready else ())
        committed = yield fx.Commit(fx.Check(host, epoch), *deletes, *proofs, *freed, *ends)
        match committed:
            case fx.Applied():
                return True
            case fx.Refused(operation=fx.Check(path=refused)) if refused == host:
                newer: fx.Epoch | None = yield fx.CurrentEpoch()
                if newer is None or newer <= epoch:
                    return False
                epoch = newer
            case fx.Refused(operation=operation) if operation in proofs:
                # A replica that had joined has left its shard, so it is not counted in the next try.
                gone.append(operation.path)
            case _:
                yield fx.Sync(path)
    return False


def _find(
    shards: tuple[TablePlace, ...], inserts: tuple[ShardInsert, ...]
) -> fx.Procedure[tuple[tuple[fx.LogIndex, GetEntry], ...] | None]:
    """Return index and entry in the log of each shard; None: one is gone, so the joint insert has ended."""
    written: list[tuple[fx.LogIndex, GetEntry]] = []
    for shard, insert in zip(shards, inserts, strict=True):

        def is_it(
            index: fx.LogIndex, entry: Entry, insert: ShardInsert = insert
        ) -> tuple[fx.LogIndex, GetEntry] | None:
            return (index, entry) if isinstance(entry, GetEntry) and entry.insert == insert.insert else None

        found = yield from search_log(shard, fx.LogIndex(insert.log_from), is_it)
        if found is None:
            return None
        written.append(found)
    return tuple(written)


def _ends(
    name: str,
    shards: tuple[TablePlace, ...],
    marks: fx.Lists,
    written: tuple[tuple[fx.LogIndex, GetEntry], ...],
    settled: tuple[tuple[str, ...], ...],
) -> tuple[fx.Operation, ...]:
    """Return what appends the end of a joint insert to all logs: `settle` with those who have it, otherwise `fail`."""
    operations: list[fx.Operation] = []
    for number, (shard, (index, entry)) in enumerate(zip(shards, written, strict=True)):
        end: Verdict
        if settled:
            end = SettleEntry(name, entry.insert, index, settled[number])
        else:
            end = FailEntry(name, entry.insert, index, tuple(part.partition for part in entry.parts))
        # The log may have gone on below another parent since the entry came.
        below = shard.below(max((layout.parent_named(mark) for mark in marks[number] or ()), default=0))
        operations.append(fx.Check(layout.open_log(below), fx.ANY_VERSION))
        operations.append(fx.Create(layout.log_create(below), encode_entry(end), sequential=True))
    return tuple(operations)
