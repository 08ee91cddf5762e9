"""Rewrites of a sharded table: parts that a caller has made of others take their place in all shards, by one commit.

As `replitree.client.change.rewrite` for a table that is not sharded, with these steps:

1. *begin*   a linearizable snapshot of all shards; then a replica of each keeps the parts that it shows: they are not merged
2. *make*    for each shard results and new parts, in an upload at its replica; a row goes to the shard that the map says
3. *commit*  the replicas prepare what they have, and one commit puts the rewrite into the logs of the shards that change
             (`replitree.protocol.sharded.rewrite`); if a part has changed meanwhile, nothing does (`ConcurrentChange`)

Absent on purpose: another try after the commit, for only the caller can make the rows anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import msgspec

from replitree.client.change.rewrite import TRIES, RewritePlan, begun_rewrite
from replitree.client.insert.terms import Terms
from replitree.client.read.scan import FRAME_LEASE_S
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.insert.split_rows import FilledUpload
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.sharded.union import ShardedSnapshot
from replitree.errors import ConcurrentChange, Unavailable
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import Shard, ShardMap


@dataclass(frozen=True, slots=True)
class ShardedRewrite:
    """A rewrite of a sharded table that was begun.

    Attributes
    ----------
    table
        The sharded table.
    snapshot
        What its caller reads: all shards at one cut.
    shard_map, map_version
        Which shard a row belongs to; the commit checks that it still does.
    plans
        For each shard what may be rewritten there, and where what is made of it goes.
    """

    table: ShardedTable
    snapshot: ShardedSnapshot
    shard_map: ShardMap
    map_version: int
    plans: Mapping[Shard, RewritePlan]

    @property
    def changed(self) -> tuple[Shard, ...]:
        """The shards for which something was put."""
        return tuple(shard for shard, plan in self.plans.items() if plan.results or plan.inserts)

    def commit(self, *, timeout_s: float) -> JointInsertResult:
        """Put the rewrite into the logs of the shards for which something was put; at least one.

        Parameters
        ----------
        timeout_s
            How long replicas may take to prepare and commit it, in seconds.

        Raises
        ------
        ConcurrentChange
            A part has changed since it was read, or buckets move; nothing was done.
        BadInput
            The files are not what the manifests say; nothing was done.
        Unavailable
            It is certainly in no log.
        OutcomeUnknown
            It may be in the table.
        """
        since = {shard_number(each.definition.name): each.index for each in self.snapshot.shards}
        token, filled = secrets.token_hex(16), dict[Shard, FilledUpload]()
        for shard in self.changed:
            plan = self.plans[shard]
            plan.lease.check()
            body = {
                "upload": plan.upload.id,
                "id": token,
                "schema_version": plan.definition.schema_version,
                "results": msgspec.to_builtins(plan.results),
                "inserts": msgspec.to_builtins(tuple(plan.inserts.values())),
            }
            made = (each for each in (*plan.results.values(), *plan.inserts.values()) if each is not None)
            filled[shard] = FilledUpload(plan.upload, tuple(made), body, since[shard])
        done = self.table.joint.commit_uploads(filled, self.map_version, Terms(token, timeout_s))
        if done is None:
            raise ConcurrentChange("buckets of the table were moved to other shards since it was read; read it again")
        return done


@contextmanager
def begun_sharded_rewrite(table: ShardedTable, *, timeout_s: float) -> Iterator[ShardedRewrite]:
    """Begin a rewrite, and keep its parts until the end; what is not committed by then is removed.

    Parameters
    ----------
    timeout_s
        How long the replicas may take, in seconds, at each step.

    Raises
    ------
    ConcurrentChange
        Parts leave a shard all the time before they can be kept.
    Unavailable
        No replica of a shard answers, the columns are being changed at the same time, or buckets move to other shards.
    """
    for left in reversed(range(TRIES)):
        with ExitStack() as held:
            try:
                found = _begin(table, held, timeout_s)
            except ConcurrentChange:
                # A merge has come between the snapshot and the lease.
                if not left:
                    raise
                continue
            yield found
            return


def _begin(table: ShardedTable, held: ExitStack, timeout_s: float) -> ShardedRewrite:
    table.refresh()
    info = table.info
    if info.map.moves:
        raise Unavailable(
            f"buckets of table {table.name} move to other shards, and a statement can't change rows on their way: nothing was"
            f" begun; run it when they are there (replitree shard status {table.name})"
        )
    snapshot = held.enter_context(table.snapshot(level="linearizable", lease_s=FRAME_LEASE_S, timeout_s=timeout_s))
    shards = {shard_number(each.name): each for each in table.find(None).all}
    plans: dict[Shard, RewritePlan] = {}
    for each in snapshot.shards:
        number = shard_number(each.definition.name)
        names = [part.part for part in each.parts]
        plans[number] = held.enter_context(begun_rewrite(shards[number], names, timeout_s=timeout_s))
    versions = {plan.definition.schema_version for plan in plans.values()} | {snapshot.definition.schema_version}
    if len(versions) > 1:
        raise Unavailable(f"the columns of {table.name} are being changed: try again")
    return ShardedRewrite(table, snapshot, info.map, info.map_version, plans)


__all__ = ["ShardedRewrite", "begun_sharded_rewrite"]
